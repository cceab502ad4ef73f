//! What the clones of a channel and its tasks share: the roster, and who waits for it to change.
//!
//! Rules: nothing is awaited under the roster's lock. Whoever changes it wakes all whom the change
//! concerns; each of them looks again in the order in which it began to wait, and an open connection
//! has room for all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redial::Policy;
use redial_grpc::balancing::evidence;
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

/// How many addresses the message of a call names that waited for them: so many fit into a log.
const CONNECTING_NAMED_MAX: usize = 4;

/// What a channel is built with.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) endpoint: Endpoint,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) connect_timeout: Duration,
    pub(crate) connect_backoff: Policy,
    pub(crate) resolve_backoff: Policy,
    pub(crate) min_resolve_interval: Duration,
    pub(crate) resolve_every: Option<Duration>,
    /// In force as long as the resolver brings none.
    pub(crate) default_config: ServiceConfig,
}

#[derive(Debug)]
pub(crate) struct Balancer {
    pub(crate) settings: Settings,
    pub(crate) control: Control,
    subchannels: Mutex<Subchannels<TonicConnection>>,
    status: Mutex<Status>,
    /// For calls: a backend may have become one to pick.
    picks_changed: Notify,
    /// Somebody has reason to doubt the addresses.
    pub(crate) re_resolve: Notify,
    /// A resolution that waits for its backoff is to be repeated now.
    pub(crate) backoff_reset: Notify,
    /// Whether a resolution has ended, well or not. A reader that sees it set sees the config that the
    /// resolution put in force.
    resolved_once: AtomicBool,
}

/// What the resolver and the runtime had to say.
#[derive(Debug, Default)]
struct Status {
    resolution_error: Option<Arc<str>>,
    /// The resolver's config that is in force.
    config: Option<ServiceConfig>,
    config_error: Option<ConfigError>,
    config_warnings: Vec<Problem>,
    /// The task of the channel is gone.
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

    /// Changes the roster, and wakes who waits if something has changed.
    pub(crate) fn update<R>(
        &self,
        change: impl FnOnce(&mut Subchannels<TonicConnection>, Instant) -> R,
    ) -> R {
        // Before the lock, which is held the shorter.
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

    /// Until somebody needs this backend.
    pub(crate) async fn connect_requested(
        &self,
        NewSubchannel { id, request_changed, .. }: &NewSubchannel,
    ) -> ConnectRequest {
        wait_for(request_changed, || lock(&self.subchannels).connect_request(*id)).await
    }

    /// Until nobody needs this backend any more, or somebody needs it anew.
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

    /// Until a resolution has ended, well or not.
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

    /// What the config in force says.
    fn balancing(&self) -> LoadBalancing {
        self.control.load_balancing()
    }

    /// Picks a backend if one can be picked now.
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
    /// None can be reached.
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

    /// No backend can be picked, and none is being dialled.
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
            // The first addresses are on their way.
            return Unpicked::Queue(None);
        }
        let unreachable = Unreachable::new(backends, status.resolution_error.clone());
        Unpicked::Fail(if status.shut_down { unreachable.runtime_ended() } else { unreachable })
    }

    /// What an attempt that has no backend yet waits for.
    pub(crate) fn describe_wait(&self) -> String {
        let subchannels = lock(&self.subchannels);
        let dialled = subchannels.all().iter().filter_map(|it| match it.state {
            State::Connecting { .. } => Some(it.address),
            _ => None,
        });
        let (named, known) = (dialled.collect::<Vec<_>>(), subchannels.all().len());
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
        format!("no connection was ready: dialling {}{more}", named.join(", "))
    }

    /// A resolution failed; the addresses in force stay.
    pub(crate) fn resolution_failed(&self, reason: &str) {
        trace::resolution_failed(reason);
        lock(&self.status).resolution_error = Some(reason.into());
        self.mark_resolved();
    }

    /// A resolution succeeded.
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

    /// The resolver's config replaces the default whole (G40); a bad one changes nothing (G39).
    fn set_config(&self, config: Result<Option<ServiceConfig>, ConfigError>, warnings: &[Problem]) {
        let mut status = lock(&self.status);
        let config = match config {
            Ok(config) => config,
            Err(error) => {
                let text = evidence::text(&*error);
                let known = status.config_error.replace(error);
                drop(status);
                // Who hears of it may look at the channel.
                if known.is_none_or(|known| evidence::text(&*known) != text) {
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
            (Some(before), Some(config)) => before.is(config),
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

    /// The task of the channel is gone: nobody dials any more.
    pub(crate) fn shut_down(&self) {
        lock(&self.status).shut_down = true;
        let changes = self.update(|subchannels, now| subchannels.set_addresses([], now));
        drop(changes);
        self.mark_resolved();
    }

    /// Ends the backoff of dials and of resolutions.
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

/// The lock, even if somebody panicked while holding it: what it guards is consistent between
/// any two statements that can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Until there is something to see.
async fn wait_for<T>(changed: &Notify, look: impl Fn() -> Option<T>) -> T {
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
pub(crate) enum Unpicked {
    /// Something may change, at the latest then.
    Queue(Option<Instant>),
    Fail(Unreachable),
}

/// A backend for one attempt.
pub(crate) struct Picked {
    pub(crate) channel: Channel,
    pub(crate) guard: PickGuard,
}

/// An attempt on its backend: its end is told when this is dropped, whatever ends it.
#[derive(Debug)]
pub(crate) struct PickGuard {
    balancer: Arc<Balancer>,
    record: PickRecord,
    /// Whether a request was answered on its connection.
    served: Arc<AtomicBool>,
    attempt_end: AttemptEnd,
    /// When its silence is a failure of the backend's.
    deadline: Option<Instant>,
}

impl PickGuard {
    /// Until then somebody waits for an answer.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// A response has come: the connection serves.
    pub(crate) fn response_started(&self) {
        // The flag publishes nothing: what the first answer means is noted under the lock.
        if !self.served.load(Ordering::Relaxed) && !self.served.swap(true, Ordering::Relaxed) {
            self.balancer
                .update(|subchannels, now| subchannels.connection_served(self.record, now));
        }
    }

    /// The backend has begun to answer.
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
