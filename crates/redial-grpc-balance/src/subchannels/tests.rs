//! The subchannels alone, with fake connections and timestamps: which backend an attempt goes to,
//! and which tasks are woken. Then random histories that check the invariants of the module
//! documentation.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::pick::CONNECT_ATTEMPT_DELAY;
use super::*;

#[derive(Clone, Debug)]
struct Fake(Rc<Cell<bool>>);

thread_local! {
    /// How often this thread has checked whether a connection is open.
    static CHECKS: Cell<u32> = const { Cell::new(0) };
    /// All connections of this thread close after this many checks.
    static CHECKS_LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
}

impl Connection for Fake {
    fn is_open(&self) -> bool {
        CHECKS.set(CHECKS.get() + 1);
        CHECKS.get() <= CHECKS_LEFT.get() && self.0.get()
    }
}

fn open() -> Fake {
    Fake(Rc::new(Cell::new(true)))
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn backend_id(port: u16) -> BackendId {
    BackendId::of(&address(port))
}

struct Rig {
    subchannels: Subchannels<Fake>,
    now: Instant,
}

impl Rig {
    fn new(balancing: LoadBalancing, ports: impl IntoIterator<Item = u16>) -> Self {
        let now = Instant::now();
        let outliers = OutlierDetection::default().consecutive_failures(2);
        let mut subchannels = Subchannels::new(outliers, 0.0);
        subchannels.set_balancing(balancing, now);
        subchannels.set_addresses(ports.into_iter().map(address), now);
        Rig { subchannels, now }
    }

    /// All backends are connected.
    fn connected(balancing: LoadBalancing, ports: impl IntoIterator<Item = u16>) -> Self {
        let mut rig = Rig::new(balancing, ports);
        let last_id: Vec<_> = rig.subchannels.all().iter().map(|it| it.id).collect();
        last_id.into_iter().for_each(|id| rig.subchannels.connected(id, open()));
        rig
    }

    fn id(&self, port: u16) -> SubchannelId {
        let found = self.subchannels.all().iter().find(|it| it.address == address(port));
        found.expect("such a backend").id
    }

    fn pick(&mut self, used: &[u16]) -> PickResult<Fake> {
        let used: Vec<_> = used.iter().map(|port| backend_id(*port)).collect();
        self.subchannels.pick(&used, used.is_empty(), self.now, self.now)
    }

    fn complete(&mut self, used: &[u16]) -> (u16, PickRecord) {
        match self.pick(used) {
            PickResult::Complete(pick) => {
                let mut all = self.subchannels.all().iter();
                (
                    all.find(|it| it.backend_id == pick.backend_id).unwrap().address.port(),
                    pick.record,
                )
            }
            other => panic!("{other:?}"),
        }
    }

    fn port(&mut self, used: &[u16]) -> u16 {
        let (port, record) = self.complete(used);
        self.subchannels.attempt_ended(record, AttemptEnd::Unknown, self.now);
        port
    }

    /// Fails attempts on this backend until it is ejected.
    fn eject(&mut self, port: u16) {
        let others: Vec<_> = self.subchannels.all().iter().map(|it| it.address.port()).collect();
        let others: Vec<_> = others.into_iter().filter(|it| *it != port).collect();
        for last in [false, true] {
            let (picked, record) = self.complete(&others);
            assert_eq!(picked, port);
            let ejected = self.subchannels.attempt_ended(
                record,
                AttemptEnd::Answered(Code::Unavailable),
                self.now,
            );
            assert_eq!(ejected, last);
        }
    }

    /// Whether queued picks are woken, and the ports of the connect tasks that are.
    fn wakeups(&mut self) -> (bool, Vec<u16>) {
        let Wakeups { queued_picks, connect_tasks } = self.subchannels.take_wakeups();
        let all = self.subchannels.all();
        let port = |connect_task: &Arc<Notify>| {
            let found = all.iter().find(|it| Arc::ptr_eq(&it.connect_task, connect_task));
            found.expect("a backend of the list").address.port()
        };
        (queued_picks, connect_tasks.iter().map(port).collect())
    }

    fn states(&self) -> String {
        let letter = |it: &Subchannel<Fake>| match it.state {
            State::Idle => 'i',
            State::Connecting { .. } => 'c',
            State::Ready(_) => 'o',
            State::TransientFailure { .. } => 'f',
        };
        self.subchannels.all().iter().map(letter).collect()
    }
}

use LoadBalancing::{PickFirst, RoundRobin};

#[test]
fn round_robin_rotates_over_ready_backends() {
    let mut rig = Rig::connected(RoundRobin, [1, 2, 3]);
    let ports: Vec<_> = (0..7).map(|_| rig.port(&[])).collect();
    assert_eq!(ports, [1, 2, 3, 1, 2, 3, 1]);
}

#[test]
fn round_robin_starts_at_a_random_backend() {
    let now = Instant::now();
    let first = |draw| {
        let mut subchannels = Subchannels::new(OutlierDetection::default(), draw);
        subchannels.set_balancing(RoundRobin, now);
        let added = subchannels.set_addresses((1..=4).map(address), now).added;
        added.iter().for_each(|it| subchannels.connected(it.id, open()));
        let PickResult::Complete(pick) = subchannels.pick(&[], true, now, now) else { panic!() };
        pick.backend_id
    };
    let all: std::collections::BTreeSet<_> =
        (0..ADDRESSES_MAX).map(|nth| first(nth as f64 / ADDRESSES_MAX as f64)).collect();
    assert_eq!(all.len(), 4);
}

#[test]
fn pick_first_keeps_its_backend_until_it_is_lost() {
    let mut rig = Rig::connected(PickFirst, [1, 2, 3]);
    assert_eq!((rig.port(&[]), rig.port(&[])), (1, 1));
    let id = rig.id(1);
    rig.subchannels.connection_lost(id, rig.now);
    assert_eq!(rig.port(&[]), 2);
    rig.subchannels.connected(id, open());
    assert_eq!(rig.port(&[]), 2, "it stays although the first is back");
}

#[test]
fn pick_prefers_unused_then_least_recently_used_backends() {
    for balancing in [PickFirst, RoundRobin] {
        let mut rig = Rig::connected(balancing, [1, 2, 3]);
        let mut used = Vec::new();
        for _ in 0..3 {
            let port = rig.port(&used);
            assert!(!used.contains(&port), "{balancing:?}");
            used.push(port);
        }
        assert_eq!(rig.port(&used), used[0], "{balancing:?}");
        used.rotate_left(1);
        assert_eq!(rig.port(&used), used[0], "{balancing:?}");
    }
}

#[test]
fn connecting_is_parallel_for_round_robin_sequential_for_pick_first() {
    assert_eq!(Rig::new(RoundRobin, [1, 2, 3]).states(), "ccc");
    let mut rig = Rig::new(PickFirst, [1, 2, 3]);
    assert_eq!(rig.states(), "cii");
    let until = match rig.pick(&[]) {
        PickResult::Queue(Some(until)) => until,
        other => panic!("{other:?}"),
    };
    assert_eq!((rig.states().as_str(), until), ("cii", rig.now + CONNECT_ATTEMPT_DELAY));
    rig.now = until;
    assert!(matches!(rig.pick(&[]), PickResult::Queue(Some(_))));
    assert_eq!(rig.states(), "cci", "the first takes long, so the second connects too");
    let first = rig.id(1);
    rig.subchannels.connect_failed(first, "refused", rig.now);
    assert!(matches!(rig.pick(&[]), PickResult::Queue(Some(_))));
    assert_eq!(rig.states(), "fci");
    let second = rig.id(2);
    rig.subchannels.connected(second, open());
    assert_eq!(rig.states(), "ioi", "the others are idle");
    assert_eq!(rig.port(&[]), 2);
}

#[test]
fn pick_fails_when_every_backend_is_in_backoff() {
    for balancing in [PickFirst, RoundRobin] {
        let mut rig = Rig::new(balancing, [1, 2]);
        for port in [1, 2] {
            assert!(matches!(rig.pick(&[]), PickResult::Queue(_)));
            let id = rig.id(port);
            rig.subchannels.connect_failed(id, "refused", rig.now);
        }
        assert!(matches!(rig.pick(&[]), PickResult::Fail), "{balancing:?}");
        let id = rig.id(2);
        rig.subchannels.connect_started(id, rig.now);
        assert!(matches!(rig.pick(&[]), PickResult::Queue(None)), "{balancing:?}");
    }
}

#[test]
fn pick_first_retry_connects_another_address() {
    let mut rig = Rig::new(PickFirst, [1, 2]);
    let (first, second) = (rig.id(1), rig.id(2));
    rig.subchannels.connected(first, open());
    assert_eq!(rig.port(&[]), 1);
    let until = match rig.pick(&[1]) {
        PickResult::Queue(Some(until)) => until,
        other => panic!("{other:?}"),
    };
    assert_eq!(rig.states(), "oc");
    assert_eq!(rig.port(&[]), 1, "first attempts do not wait for it");
    // The other address takes too long to connect, so the pick falls back to the used backend.
    let requested_at = rig.now;
    rig.now = until;
    let pick = rig.subchannels.pick(&[backend_id(1)], false, requested_at, rig.now);
    assert!(matches!(pick, PickResult::Complete(pick) if pick.backend_id == backend_id(1)));
    rig.subchannels.connected(second, open());
    assert_eq!(rig.port(&[1]), 2);
    assert_eq!(rig.port(&[]), 1, "the channel stays with its first");
}

#[test]
fn pick_skips_a_closed_connection_before_its_task_notices() {
    let mut rig = Rig::new(RoundRobin, [1, 2]);
    let (dead, alive) = (open(), open());
    let (first, second) = (rig.id(1), rig.id(2));
    rig.subchannels.connected(first, dead.clone());
    rig.subchannels.connected(second, alive.clone());
    dead.0.set(false);
    assert_eq!((rig.port(&[]), rig.port(&[])), (2, 2));
    alive.0.set(false);
    assert!(matches!(rig.pick(&[]), PickResult::Queue(None)));
}

/// A connection may close at any time, even during a pick. The pick must not fail then, because the
/// backend is about to reconnect.
#[test]
fn pick_queues_when_a_connection_closes_during_the_pick() {
    for (balancing, used) in [(PickFirst, &[][..]), (RoundRobin, &[]), (RoundRobin, &[1, 2])] {
        let mut picks = Vec::new();
        for looks in 0..12 {
            let mut rig = Rig::new(balancing, [1, 2]);
            let (first, second) = (rig.id(1), rig.id(2));
            rig.pick(&[1]);
            rig.subchannels.connect_failed(first, "refused", rig.now);
            rig.subchannels.connected(second, open());
            // Under `pick_first` the first address is idle now.
            rig.subchannels.connect_started(first, rig.now);
            rig.subchannels.connect_failed(first, "refused", rig.now);
            CHECKS.set(0);
            CHECKS_LEFT.set(looks);
            picks.push(rig.pick(used));
            CHECKS_LEFT.set(u32::MAX);
        }
        let failed = picks.iter().any(|pick| matches!(pick, PickResult::Fail));
        assert!(!failed, "{balancing:?} {picks:?}");
        assert!(matches!(picks.first(), Some(PickResult::Queue(_))));
        assert!(matches!(picks.last(), Some(PickResult::Complete(_))));
    }
}

/// Otherwise calls would wait for the other address for as long as a connection attempt may take.
#[test]
fn pick_first_connects_an_ejected_address_when_others_are_slow() {
    let mut rig = Rig::new(PickFirst, [1, 2]);
    let first = rig.id(1);
    rig.subchannels.connected(first, open());
    for _ in 0..2 {
        let (_, record) = rig.complete(&[]);
        rig.subchannels.attempt_ended(record, AttemptEnd::Answered(Code::Unavailable), rig.now);
    }
    assert_eq!((rig.port(&[]), rig.states().as_str()), (1, "oc"));
    rig.subchannels.connection_lost(first, rig.now);
    let until = match rig.pick(&[]) {
        PickResult::Queue(Some(until)) => until,
        other => panic!("{other:?}"),
    };
    assert_eq!((rig.states().as_str(), until), ("ic", rig.now + CONNECT_ATTEMPT_DELAY));
    rig.now = until;
    assert!(matches!(rig.pick(&[]), PickResult::Queue(None)));
    assert_eq!(rig.states(), "cc");
}

/// A retry of a call whose first attempt found no backend has used none, but is no first attempt.
#[test]
fn round_robin_retries_without_a_backend_take_no_turn() {
    let mut rig = Rig::connected(RoundRobin, 1..3);
    let mut picked = Vec::new();
    for _ in 0..4 {
        picked.push(rig.port(&[]));
        let PickResult::Complete(pick) = rig.subchannels.pick(&[], false, rig.now, rig.now) else {
            panic!()
        };
        rig.subchannels.attempt_ended(pick.record, AttemptEnd::Unknown, rig.now);
    }
    assert!(picked.windows(2).all(|pair| pair[0] != pair[1]), "{picked:?}");
}

/// Callers whose deadlines are too short for a backend must not eject it for all other callers.
#[test]
fn outlier_detection_ignores_deadlines_of_a_backend_that_answers_others() {
    let mut rig = Rig::connected(RoundRobin, 1..3);
    let ms = Duration::from_millis;
    for _ in 0..20 {
        let patient = rig.complete(&[2]).1;
        let impatient = rig.complete(&[2]).1;
        rig.now += ms(20);
        assert!(!rig.subchannels.attempt_ended(patient, AttemptEnd::Answered(Code::Ok), rig.now));
        for record in [impatient, impatient, impatient] {
            assert!(
                !rig.subchannels.attempt_ended(record, AttemptEnd::DeadlineExceeded, rig.now),
                "it answered meanwhile"
            );
        }
    }
    // If the backend answers no attempt in the meantime, they count.
    rig.now += ms(20);
    let records = [rig.complete(&[2]).1, rig.complete(&[2]).1];
    rig.now += ms(20);
    let ended = records
        .map(|record| rig.subchannels.attempt_ended(record, AttemptEnd::DeadlineExceeded, rig.now));
    assert_eq!(ended, [false, true]);
}

#[test]
fn outlier_detection_probes_an_ejected_backend_after_its_ejection_time() {
    let mut rig = Rig::connected(RoundRobin, [1, 2, 3]);
    rig.eject(2);
    let ports: Vec<_> = (0..6).map(|_| rig.port(&[])).collect();
    assert!(!ports.contains(&2), "{ports:?}");
    rig.now += super::super::BASE_EJECTION_TIME_DEFAULT;
    let (port, record) = rig.complete(&[]);
    assert_eq!(port, 2, "its last turn is longest ago");
    let ports: Vec<_> = (0..4).map(|_| rig.port(&[])).collect();
    assert!(!ports.contains(&2), "one call probes: {ports:?}");
    rig.subchannels.attempt_ended(record, AttemptEnd::Answered(Code::Ok), rig.now);
    let ports: Vec<_> = (0..3).map(|_| rig.port(&[])).collect();
    assert!(ports.contains(&2), "{ports:?}");
}

#[test]
fn outlier_detection_ejects_at_most_half_and_never_the_last() {
    let mut rig = Rig::connected(RoundRobin, [1, 2, 3]);
    rig.eject(1);
    for _ in 0..9 {
        let (_, record) = rig.complete(&[1]);
        assert!(!rig.subchannels.attempt_ended(
            record,
            AttemptEnd::Answered(Code::Unavailable),
            rig.now
        ));
    }
    for port in [2, 3] {
        let id = rig.id(port);
        rig.subchannels.connection_lost(id, rig.now);
    }
    assert_eq!(rig.port(&[]), 1, "the only one that is connected");
}

#[test]
fn pick_first_connects_another_address_when_its_backend_is_ejected() {
    let mut rig = Rig::new(PickFirst, [1, 2]);
    let (first, second) = (rig.id(1), rig.id(2));
    rig.subchannels.connected(first, open());
    for _ in 0..2 {
        let (_, record) = rig.complete(&[]);
        rig.subchannels.attempt_ended(record, AttemptEnd::Answered(Code::Unavailable), rig.now);
    }
    assert_eq!(rig.port(&[]), 1, "there is no other yet");
    assert_eq!(rig.states(), "oc");
    rig.subchannels.connected(second, open());
    assert_eq!((rig.port(&[]), rig.port(&[])), (2, 2));
}

#[test]
fn outlier_detection_attempts_on_a_lost_connection_are_one_failure() {
    let mut rig = Rig::connected(RoundRobin, [1, 2]);
    let records: Vec<_> = (0..9).map(|_| rig.complete(&[2]).1).collect();
    for record in records {
        assert!(!rig.subchannels.attempt_ended(record, AttemptEnd::ConnectionLost, rig.now));
    }
    assert_eq!(rig.subchannels.all()[0].outlier_state.consecutive_failures, 1);
    assert_eq!(rig.subchannels.all()[0].in_flight, 0);
}

#[test]
fn address_update_keeps_connections_and_health_of_remaining_backends() {
    let mut rig = Rig::connected(RoundRobin, [1, 2, 3]);
    let (kept, gone) = (rig.id(2), rig.id(1));
    let (_, record) = rig.complete(&[2, 3]);
    let changes = rig.subchannels.set_addresses([3, 2, 4, 4].map(address), rig.now);
    assert_eq!(changes.added.len(), 1, "a repeated address is one backend");
    assert_eq!(changes.removed.iter().map(|it| it.id).collect::<Vec<_>>(), [gone]);
    assert_eq!((rig.states().as_str(), rig.id(2)), ("ooc", kept));
    let back = rig.subchannels.set_addresses([1, 2].map(address), rig.now);
    assert_ne!(back.added[0].id, gone);
    assert!(!rig.subchannels.attempt_ended(record, AttemptEnd::ConnectionLost, rig.now));
    assert_eq!(rig.subchannels.all()[0].in_flight, 0, "the old attempt was not on this one");
}

#[test]
fn address_update_is_truncated_at_the_maximum() {
    let all = |count: usize| {
        let mut subchannels = Subchannels::<Fake>::new(OutlierDetection::default(), 0.5);
        subchannels.set_addresses((0..count).map(|port| address(port as u16)), Instant::now());
        subchannels.all().len()
    };
    assert_eq!(all(ADDRESSES_MAX), ADDRESSES_MAX);
    assert_eq!(all(ADDRESSES_MAX + 1), ADDRESSES_MAX);
}

#[test]
fn load_balancing_policy_change_takes_effect_at_once() {
    let mut rig = Rig::new(PickFirst, [1, 2]);
    let first = rig.id(1);
    rig.subchannels.connected(first, open());
    rig.subchannels.set_balancing(RoundRobin, rig.now);
    assert_eq!(rig.states(), "oc");
    rig.subchannels.set_balancing(PickFirst, rig.now);
    assert_eq!(rig.states(), "oi");
}

/// Plays a random history, one step per three bytes, and checks every pick.
fn play(bytes: &[u8]) {
    let mut bytes = bytes.iter().copied();
    let balancing = if bytes.next().unwrap_or(0) % 2 == 0 { RoundRobin } else { PickFirst };
    let mut rig = Rig::new(balancing, 0..4);
    let mut running: Vec<(u16, PickRecord)> = Vec::new();
    let mut used: Vec<u16> = Vec::new();
    // The last pick of the call, if it was queued.
    let mut queued = None;
    let links: BTreeMap<u16, Fake> = (0..8).map(|port| (port, open())).collect();
    while let (Some(step), Some(what), Some(how)) = (bytes.next(), bytes.next(), bytes.next()) {
        let port = u16::from(what) % 8;
        let known = rig.subchannels.all().iter().find(|it| it.address == address(port));
        let id = known.map(|it| it.id);
        match (step % 8, id) {
            (0, Some(id)) => {
                links[&port].0.set(true);
                rig.subchannels.connected(id, links[&port].clone());
            }
            (1, Some(id)) => rig.subchannels.connection_lost(id, rig.now),
            (2, Some(id)) => rig.subchannels.connect_failed(id, "no", rig.now),
            (3, Some(_)) => links[&port].0.set(false),
            (4, _) => {
                let ports = (0..8).filter(|bit| how >> bit & 1 == 1);
                rig.subchannels.set_addresses(ports.map(address), rig.now);
            }
            (5, _) if !running.is_empty() => {
                let (_, record) = running.swap_remove(usize::from(what) % running.len());
                let attempt_end = match how % 5 {
                    0 => AttemptEnd::Answered(Code::Ok),
                    1 => AttemptEnd::ConnectionLost,
                    2 => AttemptEnd::Unknown,
                    3 => AttemptEnd::DeadlineExceeded,
                    _ => AttemptEnd::Answered(Code::Unavailable),
                };
                let ejected = |it: &&Subchannel<Fake>| it.outlier_state.is_ejected();
                let before = rig.subchannels.all().iter().filter(ejected).count();
                if rig.subchannels.attempt_ended(record, attempt_end, rig.now) {
                    let all = rig.subchannels.all();
                    let ejected = all.iter().filter(ejected).count();
                    // A shorter list may leave more than half ejected, but a failed probe adds
                    // none.
                    assert!(ejected <= OutlierDetection::max_ejected(all.len()).max(before));
                }
                used.clear();
            }
            (6, _) => rig.now += Duration::from_secs(u64::from(how)),
            _ => queued = Some(check(&mut rig, &mut used, &mut running)),
        }
        check_order(&rig.subchannels);
        if rig.subchannels.take_wakeups().queued_picks {
            queued = None;
        }
        if let Some(PickResult::Queue(until)) = queued {
            check_wait(&rig, until);
        }
    }
}

/// A queued pick that has not been woken, and has no timeout left, would be queued again and has no
/// address to connect.
fn check_wait(rig: &Rig, until: Option<Instant>) {
    let states = rig.states();
    let open = rig.subchannels.all().iter().any(Subchannel::is_ready);
    if until.is_none() {
        assert!(!open && !states.contains('i'), "it can be picked or connect: {states}");
    }
    if until.is_none_or(|until| until > rig.now) {
        assert!(open || states.contains(['c', 'o']), "there is nothing to hope for: {states}");
    }
}

/// The rotations are ordered by the turns of the subchannels.
fn check_order(subchannels: &Subchannels<Fake>) {
    let count = subchannels.all.len();
    let by = |turn: fn(Turns) -> u64| {
        let mut index_by_id: Vec<_> = (0..count).collect();
        let key = |index: &usize| {
            (turn(subchannels.all[*index].turns), (index + subchannels.rotation_offset) % count)
        };
        index_by_id.sort_by_key(key);
        index_by_id
    };
    assert!(subchannels.first_attempts.order().eq(by(|turns| turns.first_attempt)));
    assert!(subchannels.later_attempts.order().eq(by(|turns| turns.later_attempt)));
}

fn check(
    rig: &mut Rig,
    used: &mut Vec<u16>,
    running: &mut Vec<(u16, PickRecord)>,
) -> PickResult<Fake> {
    let now = rig.now;
    let ports = |of: &dyn Fn(&Subchannel<Fake>) -> bool| -> Vec<u16> {
        let all = rig.subchannels.all().iter();
        all.filter(|it| of(it)).map(|it| it.address.port()).collect()
    };
    let open = ports(&Subchannel::is_ready);
    let healthy = ports(&|it| it.is_ready() && it.outlier_state.accepts_attempts(now));
    let all = ports(&|_| true);
    let pick = rig.pick(used);
    match &pick {
        PickResult::Complete(pick) => {
            let port = all.iter().copied().find(|port| backend_id(*port) == pick.backend_id);
            let port = port.expect("a backend of the current list");
            assert!(open.contains(&port), "an open one");
            assert!(
                healthy.is_empty() || healthy.contains(&port),
                "no ejected one while there are others"
            );
            let elsewhere = healthy.iter().any(|it| !used.contains(it));
            assert!(!elsewhere || !used.contains(&port), "an unused backend while there is one");
            if used.contains(&port) {
                let left: &[u16] = if healthy.is_empty() { &open } else { &healthy };
                let oldest = used.iter().find(|it| left.contains(it));
                assert_eq!(oldest, Some(&port), "otherwise the least recently used");
            }
            used.retain(|it| *it != port);
            used.push(port);
            running.push((port, pick.record));
        }
        PickResult::Queue(_) => {
            assert!(
                healthy.iter().all(|it| used.contains(it)),
                "no pick is queued while an unused backend is ready"
            );
        }
        PickResult::Fail => assert!(open.is_empty(), "ejection never fails a pick"),
    }
    pick
}

#[test]
fn pick_invariants_hold_in_random_histories() {
    bolero::check!()
        .with_test_time(Duration::from_secs(3))
        .with_iterations(50_000)
        .with_max_len(600)
        .for_each(play);
}

#[test]
fn round_robin_is_fair_over_any_ready_set() {
    bolero::check!()
        .with_test_time(Duration::from_secs(2))
        .with_iterations(20_000)
        .with_type::<(u8, u8, u8)>()
        .for_each(|(before, open_ones, rounds)| {
            let mut rig = Rig::new(RoundRobin, 0..8);
            let ports = |bits: u8| (0..8_u16).filter(move |bit| bits >> bit & 1 == 1);
            for port in ports(*before | 1) {
                let id = rig.id(port);
                rig.subchannels.connected(id, open());
                rig.port(&[]);
            }
            for port in 0..8 {
                let id = rig.id(port);
                match open_ones >> port & 1 {
                    1 => rig.subchannels.connected(id, open()),
                    _ => rig.subchannels.connection_lost(id, rig.now),
                }
            }
            let open = ports(*open_ones).count();
            if open == 0 {
                return;
            }
            let mut counts = BTreeMap::new();
            for _ in 0..usize::from(*rounds) {
                *counts.entry(rig.port(&[])).or_insert(0_usize) += 1;
            }
            let (each, rest) = (usize::from(*rounds) / open, usize::from(*rounds) % open);
            let mut seen: Vec<_> = counts.into_values().collect();
            seen.resize(open, 0);
            assert_eq!(seen.iter().filter(|count| **count == each + 1).count(), rest);
            assert!(seen.iter().all(|count| (each..=each + 1).contains(count)), "{seen:?}");
        });
}

/// The backends that first attempts may use, and how many each has had since that set changed.
#[derive(Default)]
struct Spread {
    ready: Vec<u16>,
    counts: BTreeMap<u16, usize>,
}

impl Spread {
    /// Picks for a first attempt. Panics if, over consecutive picks from the same set, the counts
    /// of two backends differ by more than one.
    fn pick(&mut self, rig: &mut Rig) -> Option<(u16, PickRecord)> {
        let ready = |healthy: bool| -> Vec<u16> {
            let all = rig.subchannels.all().iter().filter(|it| it.is_ready());
            let healthy = all.filter(|it| !healthy || it.outlier_state.accepts_attempts(rig.now));
            healthy.map(|it| it.address.port()).collect()
        };
        let ready =
            Some(ready(true)).filter(|healthy| !healthy.is_empty()).unwrap_or_else(|| ready(false));
        if ready != self.ready {
            *self = Spread { counts: ready.iter().map(|port| (*port, 0)).collect(), ready };
        }
        if self.ready.is_empty() {
            return None;
        }
        let (port, record) = rig.complete(&[]);
        *self.counts.get_mut(&port).expect("one that is ready") += 1;
        let (least, most) = (self.counts.values().min(), self.counts.values().max());
        assert!(most.unwrap() - least.unwrap() <= 1, "{:?}", self.counts);
        Some((port, record))
    }
}

/// Plays first attempts, retries and changes of the ready set in random order.
fn play_spread(bytes: &[u8]) {
    const PORTS: u16 = 5;
    let mut bytes = bytes.iter().copied();
    let mut rig = Rig::connected(RoundRobin, 0..PORTS);
    let (mut spread, mut running) = (Spread::default(), Vec::new());
    while let (Some(step), Some(what)) = (bytes.next(), bytes.next()) {
        let port = u16::from(what) % PORTS;
        match step % 16 {
            // A call with a random number of retries.
            0..8 => {
                let mut used = Vec::new();
                for _ in 0..=step % 4 {
                    let picked = if used.is_empty() {
                        spread.pick(&mut rig)
                    } else if let PickResult::Complete(pick) = rig.pick(&used) {
                        let mut ports = 0..PORTS;
                        Some((
                            ports.find(|port| backend_id(*port) == pick.backend_id).unwrap(),
                            pick.record,
                        ))
                    } else {
                        None
                    };
                    let Some((port, record)) = picked else { break };
                    used.retain(|it| *it != port);
                    used.push(port);
                    running.push(record);
                }
            }
            8..11 if !running.is_empty() => {
                let record = running.swap_remove(usize::from(what) % running.len());
                let codes = [Code::Ok, Code::Ok, Code::Unavailable];
                let attempt_end = AttemptEnd::Answered(codes[usize::from(step) % 3]);
                rig.subchannels.attempt_ended(record, attempt_end, rig.now);
            }
            11 => rig.now += Duration::from_secs(u64::from(what) / 4),
            12 => {
                let id = rig.id(port);
                rig.subchannels.connection_lost(id, rig.now);
            }
            13..15 => {
                let id = rig.id(port);
                rig.subchannels.connected(id, open());
            }
            _ => {}
        }
    }
}

/// The guide guarantees this property of `round_robin`.
#[test]
fn round_robin_first_attempts_stay_even_whatever_retries_do() {
    bolero::check!()
        .with_test_time(Duration::from_secs(3))
        .with_iterations(20_000)
        .with_max_len(400)
        .for_each(play_spread);
}

#[test]
fn reconnect_is_immediate_only_after_a_connection_that_served() {
    let mut rig = Rig::new(RoundRobin, [1]);
    let id = rig.id(1);
    for (served, state) in [(false, "f"), (true, "o")] {
        rig.subchannels.connected(id, open());
        let (_, record) = rig.complete(&[]);
        if served {
            rig.subchannels.connection_served(record, rig.now);
        }
        assert_eq!(rig.subchannels.closed_early(id, "closed", rig.now), served);
        assert_eq!(rig.states(), state);
    }
    // The previous connection's response does not count for the next connection.
    rig.subchannels.connected(id, open());
    assert!(!rig.subchannels.closed_early(id, "closed", rig.now));
    assert_eq!(rig.states(), "f");
}

/// The call's task may see the response after the connect task has seen the connection close.
#[test]
fn connect_backoff_ends_when_a_late_response_is_seen() {
    let mut rig = Rig::new(RoundRobin, [1]);
    let id = rig.id(1);
    rig.subchannels.connected(id, open());
    let (_, old) = rig.complete(&[]);
    rig.subchannels.connected(id, open());
    let (_, record) = rig.complete(&[]);
    let connect_request = rig.subchannels.connect_request(id).unwrap();
    assert!(!rig.subchannels.closed_early(id, "closed", rig.now));
    rig.subchannels.take_wakeups();
    rig.subchannels.connection_served(old, rig.now);
    assert_eq!((rig.states().as_str(), rig.wakeups()), ("f", (false, vec![])), "an earlier one's");
    rig.subchannels.connection_served(record, rig.now);
    assert_eq!((rig.states().as_str(), rig.wakeups()), ("c", (false, vec![1])));
    assert!(rig.subchannels.is_obsolete(id, connect_request), "the wait for the backoff is over");
}

/// A pick holds the channel's lock. The counts are exact: they do not grow with the number of
/// backends.
#[test]
fn pick_cost_does_not_grow_with_the_backend_count() {
    for balancing in [RoundRobin, PickFirst] {
        for count in [2, 1000] {
            let mut rig = Rig::connected(balancing, 0..count);
            let mut ports = Vec::new();
            for _ in 0..3 * usize::from(count) {
                CHECKS.set(0);
                let (port, record) = rig.complete(&[]);
                rig.subchannels.attempt_ended(record, AttemptEnd::Answered(Code::Ok), rig.now);
                assert_eq!(CHECKS.get(), 2, "{balancing:?} {count}");
                ports.push(port);
            }
            let turns =
                ports.chunks(usize::from(count)).all(|chunk| chunk == &ports[..count.into()]);
            assert!(turns, "the order stays the same");
        }
    }
}

#[test]
fn address_update_keeps_in_flight_counts_on_the_right_backend() {
    let mut rig = Rig::connected(RoundRobin, [1, 2, 3]);
    let records: Vec<_> = (0..3).map(|_| rig.complete(&[])).collect();
    let in_flight = |rig: &Rig| {
        let all = rig.subchannels.all().iter();
        all.map(|it| (it.address.port(), it.in_flight)).collect::<Vec<_>>()
    };
    rig.subchannels.set_addresses([4, 3, 1].map(address), rig.now);
    assert_eq!(in_flight(&rig), [(4, 0), (3, 1), (1, 1)]);
    for (port, record) in records {
        let listed = rig.subchannels.subchannel_of(record).map(|it| it.address.port());
        assert_eq!(listed, Some(port).filter(|port| *port != 2));
        rig.subchannels.attempt_ended(record, AttemptEnd::Unknown, rig.now);
    }
    assert_eq!(in_flight(&rig), [(4, 0), (3, 0), (1, 0)]);
}

/// Otherwise each of a thousand connection attempts would wake a thousand connect tasks.
#[test]
fn wakeup_of_connect_tasks_ignores_other_connect_attempts() {
    let mut rig = Rig::new(RoundRobin, [1, 2]);
    assert_eq!(rig.wakeups(), (true, vec![1, 2]));
    let (id, now) = (rig.id(1), rig.now);
    rig.subchannels.connect_started(id, now);
    assert_eq!(rig.wakeups(), (false, vec![]));
    rig.subchannels.connect_failed(id, "refused", now);
    assert_eq!(rig.wakeups(), (false, vec![]));
    rig.subchannels.connected(id, open());
    assert_eq!(rig.wakeups(), (true, vec![]));
    rig.subchannels.connection_lost(id, now);
    assert_eq!(rig.wakeups(), (false, vec![]));
    let connect_request = rig.subchannels.connect_request(id).expect("round_robin needs all");
    assert!(!rig.subchannels.is_obsolete(id, connect_request));
    rig.subchannels.connected(rig.id(2), open());
    rig.subchannels.take_wakeups();
    rig.subchannels.set_balancing(PickFirst, now);
    assert_eq!((rig.wakeups(), rig.subchannels.connect_request(id)), ((true, vec![1]), None));
    assert!(rig.subchannels.is_obsolete(id, connect_request));
    rig.subchannels.set_balancing(RoundRobin, now);
    assert_eq!(rig.wakeups(), (true, vec![1]));
    assert_ne!(rig.subchannels.connect_request(id), Some(connect_request), "another");
    assert!(rig.subchannels.is_obsolete(id, connect_request));
    // A connection for the obsolete request was just made: it is used, and not made a second time.
    rig.subchannels.connected(id, open());
    assert!(!rig.subchannels.is_obsolete(id, connect_request));
}

/// Otherwise every queued call would scan the whole list once per address.
#[test]
fn wakeup_of_queued_picks_waits_for_the_last_refused_address() {
    const COUNT: u16 = 1000;
    for balancing in [PickFirst, RoundRobin] {
        let mut rig = Rig::new(balancing, 0..COUNT);
        rig.subchannels.take_wakeups();
        for _ in 0..3 {
            assert!(matches!(rig.pick(&[]), PickResult::Queue(_)));
        }
        for port in 0..COUNT {
            let (id, last) = (rig.id(port), port == COUNT - 1);
            rig.subchannels.connect_started(id, rig.now);
            rig.subchannels.connect_failed(id, "refused", rig.now);
            let next = (balancing == PickFirst && !last).then_some(port + 1);
            assert_eq!(rig.wakeups(), (last, Vec::from_iter(next)), "{balancing:?} {port}");
        }
        assert!(matches!(rig.pick(&[]), PickResult::Fail));
    }
}

/// Otherwise a channel without calls would try all of its addresses.
#[test]
fn wakeup_is_skipped_for_a_refused_address_without_queued_picks() {
    let mut rig = Rig::new(PickFirst, [1, 2, 3]);
    let (first, second) = (rig.id(1), rig.id(2));
    rig.subchannels.take_wakeups();
    rig.subchannels.connect_failed(first, "refused", rig.now);
    assert_eq!((rig.states().as_str(), rig.wakeups()), ("fii", (false, vec![])));
    rig.subchannels.connected(first, open());
    rig.subchannels.take_wakeups();
    assert!(matches!(rig.pick(&[1]), PickResult::Queue(Some(_))));
    assert_eq!((rig.states().as_str(), rig.wakeups()), ("oci", (false, vec![2])));
    rig.subchannels.connection_lost(first, rig.now);
    assert_eq!(rig.wakeups(), (true, vec![]), "the call is woken, and does not ask again");
    rig.subchannels.connect_failed(second, "refused", rig.now);
    assert_eq!((rig.states().as_str(), rig.wakeups()), ("ifi", (false, vec![])));
}

/// The call has used the ready backend, so the call itself must choose which address to connect
/// next.
#[test]
fn wakeup_reaches_a_retry_whose_next_address_refuses() {
    let mut rig = Rig::new(PickFirst, [1, 2, 3]);
    let (first, second) = (rig.id(1), rig.id(2));
    rig.subchannels.connected(first, open());
    rig.subchannels.take_wakeups();
    assert!(matches!(rig.pick(&[1]), PickResult::Queue(Some(_))));
    assert_eq!(rig.wakeups(), (false, vec![2]));
    rig.subchannels.connect_failed(second, "refused", rig.now);
    assert_eq!((rig.states().as_str(), rig.wakeups()), ("ofi", (true, vec![])));
    assert!(matches!(rig.pick(&[1]), PickResult::Queue(Some(_))));
    assert_eq!((rig.states().as_str(), rig.wakeups()), ("ofc", (false, vec![3])));
}

/// Otherwise the pick would check every subchannel before the selected one.
#[test]
fn pick_first_checks_its_selected_backend_first() {
    let mut rig = Rig::new(PickFirst, 0..1000);
    for port in 0..1000 {
        let (id, connection) = (rig.id(port), open());
        // All but the last one have closed, and their connect tasks have not noticed yet.
        connection.0.set(port == 999);
        rig.subchannels.connected(id, connection);
    }
    assert_eq!(rig.port(&[]), 999);
    CHECKS.set(0);
    assert_eq!(rig.port(&[]), 999);
    assert_eq!(CHECKS.get(), 2);
}
