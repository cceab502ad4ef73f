//! What the clones of a channel and its tasks share: the roster, and who waits for it to change.
//!
//! Rules: nothing is awaited under the roster's lock. Whoever changes it wakes all whom the change
//! concerns; each of them looks again in the order in which it began to wait, and an open connection
//! has room for all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redial::Policy;
use redial_grpc::balancing::transport_error;
use redial_grpc::{BackendCounts, BackendId, Control, Unreachable, UsedBackends};
use redial_service_config::{LoadBalancing, Problem, ServiceConfig};
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

use super::dial::{Connector, Link};
use super::resolve::{ConfigError, Resolution};
use super::roster::{Added, Changes, Ending, Go, Mark, Pick, Roster, State, Wish};
use super::tell;
use super::view::{Backend, ChannelSnapshot};

/// How many addresses the message of a call names that waited for them: so many fit into a log.
const DIALLED_NAMED_MAX: usize = 4;

/// What a channel is built with.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) endpoint: Endpoint,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) connect_max: Duration,
    pub(crate) connect: Policy,
    pub(crate) resolve: Policy,
    pub(crate) min_resolve_interval: Duration,
    pub(crate) resolve_every: Option<Duration>,
    /// In force as long as the resolver brings none.
    pub(crate) default_config: ServiceConfig,
}

#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) settings: Settings,
    pub(crate) control: Control,
    roster: Mutex<Roster<Link>>,
    news: Mutex<News>,
    /// For calls: a backend may have become one to pick.
    changed: Notify,
    /// Somebody has reason to doubt the addresses.
    pub(crate) doubted: Notify,
    /// A resolution that waits for its backoff is to be repeated now.
    pub(crate) reset: Notify,
    /// Whether a resolution has ended, well or not. A reader that sees it set sees the config that the
    /// resolution put in force.
    settled: AtomicBool,
}

/// What the resolver and the runtime had to say.
#[derive(Debug, Default)]
struct News {
    unresolved: Option<Arc<str>>,
    /// The resolver's config that is in force.
    config: Option<ServiceConfig>,
    config_error: Option<ConfigError>,
    config_warnings: Vec<Problem>,
    /// The task of the channel is gone.
    ended: bool,
}

impl Hub {
    pub(crate) fn new(settings: Settings, control: Control, roster: Roster<Link>) -> Self {
        Hub {
            settings,
            control,
            roster: Mutex::new(roster),
            news: Mutex::default(),
            changed: Notify::new(),
            doubted: Notify::new(),
            reset: Notify::new(),
            settled: AtomicBool::new(false),
        }
    }

    /// Changes the roster, and wakes who waits if something has changed.
    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut Roster<Link>, Instant) -> R) -> R {
        // Before the lock, which is held the shorter.
        let now = Instant::now();
        let mut roster = lock(&self.roster);
        let result = change(&mut roster, now);
        let stirred = roster.take_stirred();
        drop(roster);
        if stirred.picks {
            self.changed.notify_waiters();
        }
        for keeper in stirred.keepers {
            keeper.notify_one();
        }
        result
    }

    /// Until somebody needs this backend.
    pub(crate) async fn wanted(&self, Added { serial, woken, .. }: &Added) -> Wish {
        until(woken, || lock(&self.roster).wish(*serial)).await
    }

    /// Until nobody needs this backend any more, or somebody needs it anew.
    pub(crate) async fn over(&self, Added { serial, woken, .. }: &Added, wish: Wish) {
        until(woken, || lock(&self.roster).is_over(*serial, wish).then_some(())).await;
    }

    /// Until a resolution has ended, well or not.
    pub(crate) async fn settled(&self) {
        until(&self.changed, || self.is_settled().then_some(())).await;
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    fn settle(&self) {
        self.settled.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// What the config in force says.
    fn balancing(&self) -> LoadBalancing {
        self.control.load_balancing()
    }

    /// Picks a backend if one can be picked now.
    pub(crate) fn try_pick(
        self: &Arc<Self>,
        used: Option<&UsedBackends>,
        asked: Instant,
    ) -> Result<Picked, Pending> {
        let balancing = self.balancing();
        let first = |ids: &[BackendId]| match used {
            Some(used) => used.is_first(ids),
            None => true,
        };
        let mut other = None;
        let mut look = |used: &[BackendId]| {
            let pick = self.with(|roster, now| {
                roster.set_balancing(balancing, now);
                roster.pick(used, first(used), asked, now)
            });
            match pick {
                Pick::Go(go) => Some((go.id, go)),
                Pick::Wait(until) => {
                    other = Some(Pending::Wait(until));
                    None
                }
                Pick::Fail => None,
            }
        };
        let go = match used {
            Some(used) => used.choose(look),
            None => look(&[]).map(|(_, go)| go),
        };
        match go {
            Some(Go { connection: Link { channel, served, name, .. }, mark, .. }) => {
                if let Some(used) = used {
                    used.set_name(name);
                }
                let hub = self.clone();
                let ticket = Ticket { hub, mark, served, ending: Ending::Untold, deadline: None };
                Ok(Picked { channel, ticket })
            }
            None => Err(other.unwrap_or_else(|| self.nothing())),
        }
    }

    /// Waits until a backend can be picked.
    ///
    /// # Errors
    /// None can be reached.
    pub(crate) async fn pick(
        self: &Arc<Self>,
        used: Option<UsedBackends>,
        asked: Instant,
    ) -> Result<Picked, Unreachable> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let until = match self.try_pick(used.as_ref(), asked) {
                Ok(picked) => return Ok(picked),
                Err(Pending::Fail(unreachable)) => return Err(unreachable),
                Err(Pending::Wait(until)) => until,
            };
            if let Some(used) = &used {
                used.set_wait(self.waits_for());
            }
            match until {
                None => changed.await,
                Some(until) => {
                    let _either = tokio::time::timeout_at(until, changed).await;
                }
            }
        }
    }

    /// No backend can be picked, and none is being dialled.
    fn nothing(&self) -> Pending {
        let backends: Vec<_> = lock(&self.roster)
            .backends()
            .iter()
            .filter_map(|it| match &it.state {
                State::Failed { stop_reason } => Some((it.address, stop_reason.clone())),
                _ => None,
            })
            .collect();
        let news = lock(&self.news);
        if !news.ended && backends.is_empty() && news.unresolved.is_none() {
            // The first addresses are on their way.
            return Pending::Wait(None);
        }
        let unreachable = Unreachable::new(backends, news.unresolved.clone());
        Pending::Fail(if news.ended { unreachable.runtime_ended() } else { unreachable })
    }

    /// What an attempt that has no backend yet waits for.
    pub(crate) fn waits_for(&self) -> String {
        let roster = lock(&self.roster);
        let dialled = roster.backends().iter().filter_map(|it| match it.state {
            State::Connecting { .. } => Some(it.address),
            _ => None,
        });
        let (named, known) = (dialled.collect::<Vec<_>>(), roster.backends().len());
        drop(roster);
        if known == 0 {
            let stop_reason = lock(&self.news).unresolved.clone();
            return match stop_reason {
                Some(stop_reason) => format!("no address was known: {stop_reason}"),
                None => "no address was known: the name was being resolved".to_owned(),
            };
        }
        let more = if named.len() > DIALLED_NAMED_MAX { ", ..." } else { "" };
        let named: Vec<_> = named.iter().take(DIALLED_NAMED_MAX).map(ToString::to_string).collect();
        format!("no connection was ready: dialling {}{more}", named.join(", "))
    }

    /// A resolution failed; the addresses in force stay.
    pub(crate) fn unresolved(&self, stop_reason: &str) {
        tell::unresolved(stop_reason);
        lock(&self.news).unresolved = Some(stop_reason.into());
        self.settle();
    }

    /// A resolution succeeded.
    pub(crate) fn resolved(&self, resolution: Resolution) -> Changes<Link> {
        self.set_config(resolution.config, &resolution.warnings);
        let balancing = self.balancing();
        let changes = self.with(|roster, now| {
            roster.set_balancing(balancing, now);
            roster.set_addresses(resolution.addresses, now)
        });
        lock(&self.news).unresolved = None;
        if !changes.added.is_empty() || !changes.removed.is_empty() {
            tell::addresses(changes.added.len(), changes.removed.len());
        }
        self.settle();
        changes
    }

    /// The resolver's config replaces the default whole (G40); a bad one changes nothing (G39).
    fn set_config(&self, config: Result<Option<ServiceConfig>, ConfigError>, warnings: &[Problem]) {
        let mut news = lock(&self.news);
        let config = match config {
            Ok(config) => config,
            Err(error) => {
                let text = transport_error::chain_text(&*error);
                let known = news.config_error.replace(error);
                drop(news);
                // Who hears of it may look at the channel.
                if known.is_none_or(|known| transport_error::chain_text(&*known) != text) {
                    tell::config_refused(&text);
                }
                return;
            }
        };
        news.config_error = None;
        let warned = news.config_warnings != warnings;
        if warned {
            news.config_warnings = warnings.to_vec();
        }
        let stays = match (&news.config, &config) {
            (Some(before), Some(config)) => before.is(config),
            (before, config) => before.is_none() && config.is_none(),
        };
        if !stays {
            let default = || self.settings.default_config.clone();
            self.control.set_config(config.clone().unwrap_or_else(default));
            news.config = config;
        }
        drop(news);
        if warned {
            tell::config_warnings(warnings);
        }
    }

    /// The task of the channel is gone: nobody dials any more.
    pub(crate) fn end(&self) {
        lock(&self.news).ended = true;
        let changes = self.with(|roster, now| roster.set_addresses([], now));
        drop(changes);
        self.settle();
    }

    /// Ends the backoff of dials and of resolutions.
    pub(crate) fn reset_backoff(&self) {
        self.with(Roster::dial_failed_now);
        self.reset.notify_waiters();
    }

    pub(crate) fn counts(&self) -> BackendCounts {
        let roster = lock(&self.roster);
        let connected = roster.backends().iter().filter(|it| it.is_open()).count();
        BackendCounts::new(roster.backends().len(), connected)
    }

    pub(crate) fn snapshot(&self) -> ChannelSnapshot {
        let now = Instant::now();
        let backends =
            lock(&self.roster).backends().iter().map(|it| Backend::of(it, now)).collect();
        let news = lock(&self.news);
        let resolution_error = news.unresolved.as_deref().map(str::to_owned);
        let (config_error, config_warnings) =
            (news.config_error.clone(), news.config_warnings.clone());
        ChannelSnapshot { backends, resolution_error, config_error, config_warnings }
    }
}

/// The lock, even if somebody panicked while holding it: what it guards is consistent between
/// any two statements that can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Until there is something to see.
async fn until<T>(changed: &Notify, look: impl Fn() -> Option<T>) -> T {
    loop {
        let changed = changed.notified();
        tokio::pin!(changed);
        // Before looking: what changes from here on is not missed.
        changed.as_mut().enable();
        if let Some(seen) = look() {
            return seen;
        }
        changed.await;
    }
}

/// No backend can be picked now.
pub(crate) enum Pending {
    /// Something may change, at the latest then.
    Wait(Option<Instant>),
    Fail(Unreachable),
}

/// A backend for one attempt.
pub(crate) struct Picked {
    pub(crate) channel: Channel,
    pub(crate) ticket: Ticket,
}

/// An attempt on its backend: its end is told when this is dropped, whatever ends it.
#[derive(Debug)]
pub(crate) struct Ticket {
    hub: Arc<Hub>,
    mark: Mark,
    /// Whether a request was answered on its connection.
    served: Arc<AtomicBool>,
    ending: Ending,
    /// When its silence is a failure of the backend's.
    deadline: Option<Instant>,
}

impl Ticket {
    /// Until then somebody waits for an answer.
    pub(crate) fn waits_until(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// A response has come: the connection serves.
    pub(crate) fn answered(&self) {
        // The flag publishes nothing: what the first answer means is noted under the lock.
        if !self.served.load(Ordering::Relaxed) && !self.served.swap(true, Ordering::Relaxed) {
            self.hub.with(|roster, now| roster.served(self.mark, now));
        }
    }

    /// The backend has begun to answer.
    pub(crate) fn heard(&mut self) {
        self.deadline = None;
        if self.mark.take_trial() {
            self.hub.with(|roster, now| roster.heard(self.mark, now));
        }
    }

    pub(crate) fn end(mut self, ending: Ending) {
        (self.ending, self.deadline) = (ending, None);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Ticket { hub, mark, ending, deadline, .. } = self;
        let avoided = hub.with(|roster, now| {
            let late = deadline.is_some_and(|deadline| now >= deadline);
            let ending = if late { Ending::Unanswered } else { *ending };
            let avoided = roster.ended(*mark, ending, now);
            let backend = avoided.then(|| roster.of(*mark)).flatten();
            backend.map(|it| it.address)
        });
        if let Some(address) = avoided {
            tell::avoided(address);
        }
    }
}
