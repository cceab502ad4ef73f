//! The state that the clones of a channel and its tasks share: the subchannels behind one lock, the
//! status of the resolver, and the notifications that wake queued picks and connect tasks.
//!
//! Rules: no `await` while the subchannels are locked. Every change notifies the tasks that it
//! affects. A woken pick runs again, in the order of arrival; a ready connection has no limit on
//! the number of picks.

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

use super::connection::{Connector, TonicConnection};
use super::resolver::{ConfigError, Resolution};
use super::snapshot::{Backend, ChannelSnapshot};
use super::subchannels::{
    AddressChanges, AttemptEnd, ConnectRequest, NewSubchannel, Pick, PickRecord, PickResult, State,
    Subchannels,
};
use super::trace;

/// How many connecting addresses an error message lists, so that it fits into a log line.
const CONNECTING_NAMED_MAX: usize = 4;

/// The options that a channel was built with.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) endpoint: Endpoint,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) connect_timeout: Duration,
    pub(crate) connect_backoff: Policy,
    pub(crate) resolve_backoff: Policy,
    pub(crate) min_resolve_interval: Duration,
    pub(crate) resolve_every: Option<Duration>,
    /// Active while the resolver provides no config.
    pub(crate) default_config: ServiceConfig,
}

#[derive(Debug)]
pub(crate) struct Balancer {
    pub(crate) settings: Settings,
    pub(crate) control: Control,
    subchannels: Mutex<Subchannels<TonicConnection>>,
    status: Mutex<Status>,
    /// Wakes queued picks: a backend may have become available.
    picks_changed: Notify,
    /// Requests another resolution: a connection was lost or could not be made.
    pub(crate) re_resolve: Notify,
    /// Ends the backoff of a failed resolution.
    pub(crate) backoff_reset: Notify,
    /// Whether the first resolution has ended, with success or failure. A reader that sees `true`
    /// also sees the config that this resolution activated.
    resolved_once: AtomicBool,
}

/// Results of the last resolution, and whether the channel still runs.
#[derive(Debug, Default)]
struct Status {
    resolution_error: Option<Arc<str>>,
    /// The resolver's config, if it is the active one.
    config: Option<ServiceConfig>,
    config_error: Option<ConfigError>,
    config_warnings: Vec<Problem>,
    /// The channel's task has ended, so no backend is connected any more.
    shut_down: bool,
}

impl Balancer {
    pub(crate) fn new(
        settings: Settings,
        control: Control,
        subchannels: Subchannels<TonicConnection>,
    ) -> Self {
        Balancer {
            settings,
            control,
            subchannels: Mutex::new(subchannels),
            status: Mutex::default(),
            picks_changed: Notify::new(),
            re_resolve: Notify::new(),
            backoff_reset: Notify::new(),
            resolved_once: AtomicBool::new(false),
        }
    }

    /// Changes the subchannels and wakes the tasks that the change affects.
    pub(crate) fn update<R>(
        &self,
        change: impl FnOnce(&mut Subchannels<TonicConnection>, Instant) -> R,
    ) -> R {
        // Read before taking the lock, to keep the critical section short.
        let now = Instant::now();
        let mut subchannels = lock(&self.subchannels);
        let result = change(&mut subchannels, now);
        let wakeups = subchannels.take_wakeups();
        drop(subchannels);
        if wakeups.queued_picks {
            self.picks_changed.notify_waiters();
        }
        for connect_task in wakeups.connect_tasks {
            connect_task.notify_one();
        }
        result
    }

    /// Waits until this subchannel should connect.
    pub(crate) async fn connect_requested(
        &self,
        NewSubchannel { id, request_changed, .. }: &NewSubchannel,
    ) -> ConnectRequest {
        wait_for(request_changed, || lock(&self.subchannels).connect_request(*id)).await
    }

    /// Waits until the connect request is obsolete: the subchannel became idle, or was requested
    /// again.
    pub(crate) async fn connect_obsolete(
        &self,
        NewSubchannel { id, request_changed, .. }: &NewSubchannel,
        connect_request: ConnectRequest,
    ) {
        wait_for(request_changed, || {
            lock(&self.subchannels).is_obsolete(*id, connect_request).then_some(())
        })
        .await;
    }

    /// Waits for the end of the first resolution, with success or failure.
    pub(crate) async fn resolved_once(&self) {
        wait_for(&self.picks_changed, || self.is_resolved_once().then_some(())).await;
    }

    pub(crate) fn is_resolved_once(&self) -> bool {
        self.resolved_once.load(Ordering::Acquire)
    }

    fn mark_resolved(&self) {
        self.resolved_once.store(true, Ordering::Release);
        self.picks_changed.notify_waiters();
    }

    /// The load balancing policy of the active config.
    fn balancing(&self) -> LoadBalancing {
        self.control.load_balancing()
    }

    /// Picks a backend without waiting.
    pub(crate) fn try_pick(
        self: &Arc<Self>,
        used: Option<&UsedBackends>,
        requested_at: Instant,
    ) -> Result<Picked, Unpicked> {
        let balancing = self.balancing();
        let first = |ids: &[BackendId]| match used {
            Some(used) => used.is_first(ids),
            None => true,
        };
        let mut other = None;
        let mut look = |used: &[BackendId]| {
            let pick = self.update(|subchannels, now| {
                subchannels.set_balancing(balancing, now);
                subchannels.pick(used, first(used), requested_at, now)
            });
            match pick {
                PickResult::Complete(pick) => Some((pick.backend_id, pick)),
                PickResult::Queue(until) => {
                    other = Some(Unpicked::Queue(until));
                    None
                }
                PickResult::Fail => None,
            }
        };
        let pick = match used {
            Some(used) => used.choose(look),
            None => look(&[]).map(|(_, pick)| pick),
        };
        match pick {
            Some(Pick {
                connection: TonicConnection { channel, served, name, .. },
                record,
                ..
            }) => {
                if let Some(used) = used {
                    used.set_name(name);
                }
                let balancer = self.clone();
                let guard = PickGuard {
                    balancer,
                    record,
                    served,
                    attempt_end: AttemptEnd::Unknown,
                    deadline: None,
                };
                Ok(Picked { channel, guard })
            }
            None => Err(other.unwrap_or_else(|| self.no_pick())),
        }
    }

    /// Waits until a backend can be picked.
    ///
    /// # Errors
    /// No backend can be reached.
    pub(crate) async fn pick(
        self: &Arc<Self>,
        used: Option<UsedBackends>,
        requested_at: Instant,
    ) -> Result<Picked, Unreachable> {
        loop {
            let changed = self.picks_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let until = match self.try_pick(used.as_ref(), requested_at) {
                Ok(picked) => return Ok(picked),
                Err(Unpicked::Fail(unreachable)) => return Err(unreachable),
                Err(Unpicked::Queue(until)) => until,
            };
            if let Some(used) = &used {
                used.set_wait(self.describe_wait());
            }
            match until {
                None => changed.await,
                Some(until) => {
                    let _either = tokio::time::timeout_at(until, changed).await;
                }
            }
        }
    }

    /// No backend can be picked and none is connecting: fails the pick, or queues it until the
    /// first addresses are known.
    fn no_pick(&self) -> Unpicked {
        let backends: Vec<_> = lock(&self.subchannels)
            .all()
            .iter()
            .filter_map(|it| match &it.state {
                State::TransientFailure { reason } => Some((it.address, reason.clone())),
                _ => None,
            })
            .collect();
        let status = lock(&self.status);
        if !status.shut_down && backends.is_empty() && status.resolution_error.is_none() {
            // The first resolution has not ended.
            return Unpicked::Queue(None);
        }
        let unreachable = Unreachable::new(backends, status.resolution_error.clone());
        Unpicked::Fail(if status.shut_down { unreachable.runtime_ended() } else { unreachable })
    }

    /// Describes the cause of the wait, for the message of a deadline that ends it.
    pub(crate) fn describe_wait(&self) -> String {
        let subchannels = lock(&self.subchannels);
        let connecting = subchannels.all().iter().filter_map(|it| match it.state {
            State::Connecting { .. } => Some(it.address),
            _ => None,
        });
        let (named, known) = (connecting.collect::<Vec<_>>(), subchannels.all().len());
        drop(subchannels);
        if known == 0 {
            let reason = lock(&self.status).resolution_error.clone();
            return match reason {
                Some(reason) => format!("no address was known: {reason}"),
                None => "no address was known: the name was being resolved".to_owned(),
            };
        }
        let more = if named.len() > CONNECTING_NAMED_MAX { ", ..." } else { "" };
        let named: Vec<_> =
            named.iter().take(CONNECTING_NAMED_MAX).map(ToString::to_string).collect();
        format!("no connection was ready: connecting to {}{more}", named.join(", "))
    }

    /// Records a failed resolution. The current addresses stay in use.
    pub(crate) fn resolution_failed(&self, reason: &str) {
        trace::resolution_failed(reason);
        lock(&self.status).resolution_error = Some(reason.into());
        self.mark_resolved();
    }

    /// Applies the config and the addresses of a resolution.
    pub(crate) fn resolution_succeeded(
        &self,
        resolution: Resolution,
    ) -> AddressChanges<TonicConnection> {
        self.set_config(resolution.config, &resolution.warnings);
        let balancing = self.balancing();
        let changes = self.update(|subchannels, now| {
            subchannels.set_balancing(balancing, now);
            subchannels.set_addresses(resolution.addresses, now)
        });
        lock(&self.status).resolution_error = None;
        if !changes.added.is_empty() || !changes.removed.is_empty() {
            trace::backends_changed(changes.added.len(), changes.removed.len());
        }
        self.mark_resolved();
        changes
    }

    /// The resolver's config replaces the default as a whole (decision G40). An invalid one is
    /// rejected, and the current config stays active (decision G39).
    fn set_config(&self, config: Result<Option<ServiceConfig>, ConfigError>, warnings: &[Problem]) {
        let mut status = lock(&self.status);
        let config = match config {
            Ok(config) => config,
            Err(error) => {
                let text = transport_error::chain_text(&*error);
                let known = status.config_error.replace(error);
                drop(status);
                // The lock is released first: a subscriber may call back into the channel.
                if known.is_none_or(|known| transport_error::chain_text(&*known) != text) {
                    trace::config_rejected(&text);
                }
                return;
            }
        };
        status.config_error = None;
        let warned = status.config_warnings != warnings;
        if warned {
            status.config_warnings = warnings.to_vec();
        }
        let stays = match (&status.config, &config) {
            (Some(before), Some(config)) => before.ptr_eq(config),
            (before, config) => before.is_none() && config.is_none(),
        };
        if !stays {
            let default = || self.settings.default_config.clone();
            self.control.set_config(config.clone().unwrap_or_else(default));
            status.config = config;
        }
        drop(status);
        if warned {
            trace::config_warnings(warnings);
        }
    }

    /// Called when the channel's task has ended: removes all subchannels and fails queued picks.
    pub(crate) fn shut_down(&self) {
        lock(&self.status).shut_down = true;
        let changes = self.update(|subchannels, now| subchannels.set_addresses([], now));
        drop(changes);
        self.mark_resolved();
    }

    /// Ends the backoff of connect attempts and of resolutions.
    pub(crate) fn reset_backoff(&self) {
        self.update(Subchannels::reset_backoff);
        self.backoff_reset.notify_waiters();
    }

    pub(crate) fn counts(&self) -> BackendCounts {
        let subchannels = lock(&self.subchannels);
        let connected = subchannels.all().iter().filter(|it| it.is_ready()).count();
        BackendCounts::new(subchannels.all().len(), connected)
    }

    pub(crate) fn snapshot(&self) -> ChannelSnapshot {
        let now = Instant::now();
        let backends =
            lock(&self.subchannels).all().iter().map(|it| Backend::of(it, now)).collect();
        let status = lock(&self.status);
        let resolution_error = status.resolution_error.as_deref().map(str::to_owned);
        let (config_error, config_warnings) =
            (status.config_error.clone(), status.config_warnings.clone());
        ChannelSnapshot { backends, resolution_error, config_error, config_warnings }
    }
}

/// Ignores lock poisoning: the guarded data is consistent between any two statements that can
/// panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `look` returns a value, checking after each notification.
async fn wait_for<T>(changed: &Notify, look: impl Fn() -> Option<T>) -> T {
    loop {
        let changed = changed.notified();
        tokio::pin!(changed);
        // Registered before `look` runs, so that no notification is lost in between.
        changed.as_mut().enable();
        if let Some(seen) = look() {
            return seen;
        }
        changed.await;
    }
}

/// Why no backend was picked.
pub(crate) enum Unpicked {
    /// Try again after a notification, or at this time at the latest.
    Queue(Option<Instant>),
    Fail(Unreachable),
}

/// The connection for one attempt, and the guard that records how the attempt ends.
pub(crate) struct Picked {
    pub(crate) channel: Channel,
    pub(crate) guard: PickGuard,
}

/// Counts one attempt as in flight on its backend. Dropping the guard records how the attempt
/// ended, however it ended.
#[derive(Debug)]
pub(crate) struct PickGuard {
    balancer: Arc<Balancer>,
    record: PickRecord,
    /// Whether the connection has returned a response before.
    served: Arc<AtomicBool>,
    attempt_end: AttemptEnd,
    /// If the attempt has no message by then, outlier detection counts a failure.
    deadline: Option<Instant>,
}

impl PickGuard {
    /// Sets the attempt's deadline, if it has one.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// The response headers have arrived: the connection works.
    pub(crate) fn response_started(&self) {
        // Relaxed: the flag publishes no other data, the update itself takes the lock.
        if !self.served.load(Ordering::Relaxed) && !self.served.swap(true, Ordering::Relaxed) {
            self.balancer
                .update(|subchannels, now| subchannels.connection_served(self.record, now));
        }
    }

    /// The first message has arrived: the deadline no longer counts as a failure, and a probe
    /// succeeds.
    pub(crate) fn first_message(&mut self) {
        self.deadline = None;
        if self.record.take_probe() {
            self.balancer.update(|subchannels, now| subchannels.probe_answered(self.record, now));
        }
    }

    pub(crate) fn finish(mut self, attempt_end: AttemptEnd) {
        (self.attempt_end, self.deadline) = (attempt_end, None);
    }
}

impl Drop for PickGuard {
    fn drop(&mut self) {
        let PickGuard { balancer, record, attempt_end, deadline, .. } = self;
        let ejected = balancer.update(|subchannels, now| {
            let late = deadline.is_some_and(|deadline| now >= deadline);
            let attempt_end = if late { AttemptEnd::DeadlineExceeded } else { *attempt_end };
            let ejected = subchannels.attempt_ended(*record, attempt_end, now);
            let backend = ejected.then(|| subchannels.subchannel_of(*record)).flatten();
            backend.map(|it| it.address)
        });
        if let Some(address) = ejected {
            trace::backend_ejected(address);
        }
    }
}
