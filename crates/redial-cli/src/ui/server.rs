//! The server: its address, its routes, its limits, and its end.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::middleware;
use axum::routing::{get, post};
use tokio::sync::watch;

use super::access::{self, Access};
use super::runs::Runs;
use super::{PATIENCE, catalog, check, page, plan, simulate};

/// The limits of a server on what its pages compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many plans run at the same time, and how long one may take.
    pub plans: usize,
    /// How long a plan may take.
    pub plan_time: Duration,
    /// How many simulations run at the same time.
    pub simulations: usize,
    /// How long a simulation may take.
    pub simulation_time: Duration,
    /// How many further plans, and how many further simulations, wait for their turn.
    pub waiting: usize,
}

impl Default for Limits {
    /// Two plans of 15 s, one simulation of 10 minutes, and eight of each that wait.
    fn default() -> Self {
        Limits {
            plans: 2,
            plan_time: Duration::from_secs(15),
            simulations: 1,
            simulation_time: Duration::from_secs(600),
            waiting: 8,
        }
    }
}

/// What all requests share.
pub(super) struct Shared {
    pub(super) access: Access,
    pub(super) plans: Runs,
    pub(super) simulations: Runs,
}

/// A server on a port of this machine.
///
/// ```no_run
/// use redial_cli::ui::{Limits, Server};
///
/// # async fn example() -> std::io::Result<()> {
/// let server = Server::bind(0, Limits::default())?;
/// println!("{}", server.url());
/// server.serve(async { let _ = tokio::signal::ctrl_c().await; }).await
/// # }
/// ```
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
    closing: Arc<AtomicBool>,
}

impl Server {
    /// Listens on this port of 127.0.0.1; port 0 takes any free port. The token is new.
    ///
    /// # Errors
    /// The port cannot be used, or the system has no random numbers or threads.
    pub fn bind(port: u16, limits: Limits) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let access = Access::new(listener.local_addr()?.port())?;
        let closing = Arc::new(AtomicBool::new(false));
        let runs = |at_once, time| Runs::new(at_once, limits.waiting, time, closing.clone());
        let plans = runs(limits.plans, limits.plan_time)?;
        let simulations = runs(limits.simulations, limits.simulation_time)?;
        let shared = Arc::new(Shared { access, plans, simulations });
        Ok(Server { listener, shared, closing })
    }

    /// The address of the page, with the token.
    #[must_use]
    pub fn url(&self) -> String {
        self.shared.access.url()
    }

    /// The address of the socket.
    ///
    /// # Errors
    /// The system cannot say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// An address that leads to the page once. It is for the command line of a browser, which other
    /// users of the machine can read.
    #[must_use]
    pub fn opening_url(&self) -> String {
        self.shared.access.opening_url()
    }

    /// A view of what the server computes, for tests.
    #[must_use]
    pub fn activity(&self) -> Activity {
        Activity(self.shared.clone())
    }

    /// Serves until `until` is ready. Runs are stopped then, and open requests get two seconds.
    ///
    /// # Errors
    /// There is no runtime with I/O, or the socket failed.
    pub async fn serve(self, until: impl Future<Output = ()> + Send) -> io::Result<()> {
        let Server { listener, shared, closing } = self;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (end, mut ended) = watch::channel(false);
        let serving = axum::serve(listener, routes(shared)).with_graceful_shutdown(async move {
            let _ = ended.wait_for(|ended| *ended).await;
        });
        let mut serving = std::pin::pin!(serving.into_future());
        tokio::select! {
            served = &mut serving => return served,
            () = until => {}
        }
        closing.store(true, Ordering::Relaxed);
        end.send_replace(true);
        tokio::time::timeout(PATIENCE, serving).await.unwrap_or(Ok(()))
    }
}

/// What a server computes at this moment.
pub struct Activity(Arc<Shared>);

impl Activity {
    /// The plans and simulations that run or wait.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.0.plans.count() + self.0.simulations.count()
    }
}

fn routes(shared: Arc<Shared>) -> Router {
    let base = shared.access.base();
    let at = |path: &str| format!("{base}{path}");
    let mut router = Router::new()
        .route("/open/{code}", get(access::open))
        .route(&at("api/catalog"), get(catalog::catalog))
        .route(&at("api/check"), post(check::check))
        .route(&at("api/plan"), post(plan::plan))
        .route(&at("api/simulation/check"), post(simulate::check))
        .route(&at("api/simulation/run"), post(simulate::run));
    for file in page::FILES {
        router = router.route(&at(file.path), get(move || async move { file.response() }));
    }
    router
        .fallback(access::not_found)
        .layer(middleware::from_fn_with_state(shared.clone(), access::check))
        .with_state(shared)
}
