//! The machine: one call, from its first attempt to its one end, with everything that can happen
//! to it. Retry and hedging, for all designs, are this machine.
//!
//! Inputs come in as methods, each with the moment at which it happens. Commands come out of
//! [`Call::command`], until there are none; then [`Call::wake_at`] says when to come back. The
//! machine holds no value, no error and no future: those are the driver's, filed under a slot.
//!
//! At one moment the driver reports outcomes first, then what the application wrote, then calls
//! [`Call::wake`], which judges the deadline before the timers, and cancels last (ruling P4).
//!
//! Invariants, asserted after every step: one end; nothing starts after commit, end or cancel;
//! attempts stay within the limit; a running attempt is settled or cancelled before the end;
//! whoever waits has a timer or a question under way, and an ended call has neither.

use core::time::Duration;

use crate::decide::{self, Advice, Verdict, Why, decide};
use crate::policy::{Expired, TimedOut};
use crate::time::{NEVER, Ns, ns};
use crate::{
    Cost, Directive, Failure, Grant, Hint, HintRule, Judgement, Kind, Ledger, Note, Policy, Proof,
};
use crate::{World, time};

/// The most attempts that a machine can run at once (ruling G2).
pub const LIVE_MAX: usize = 32;

/// The most replacements of what was never sent (ruling G27).
const UNSENT_MAX: u32 = 1000;
/// The pause before the second replacement of what was never sent; each further one doubles it.
const UNSENT_FIRST: Ns = time::ns(Duration::from_millis(10));
/// The longest pause before such a replacement.
const UNSENT_CAP: Ns = time::ns(Duration::from_secs(1));

/// What a call says besides its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// After how long it must end; the smaller of this and the policy's deadline counts.
    pub deadline: Option<Duration>,
    /// Whether it may run twice.
    pub idempotent: bool,
    /// Whether what it sends cannot be kept, so that one attempt is made and no more (ruling G24).
    pub sealed: bool,
    /// Whether a strategy is asked, though the policy asks none.
    pub asks: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Terms { deadline: None, idempotent: true, sealed: false, asks: false }
    }
}

/// What the driver must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Stop the attempt in this slot.
    Cancel(usize),
    /// Start an attempt.
    Start(Start),
    /// Ask the strategy about this failure, and report what it says to [`Call::answered`].
    Ask(Failure),
    /// The throttle said that it would answer later ([`Bucket::later`](crate::Bucket::later)):
    /// report that to [`Call::granted`].
    Await(Cost),
    /// Hand on the result. Nothing comes after it.
    End(End),
}

/// An attempt that starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Where it is filed; free again after its outcome or cancelling.
    pub slot: usize,
    /// Its place in the order of starts, from 1.
    pub attempt: u32,
    /// Its number as the policy counts; a replacement keeps that of what it replaces.
    pub number: u32,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub why: Why,
    /// The attempt whose outcome is handed on, by its place in the order of starts.
    pub attempt: Option<u32>,
    /// Its slot.
    pub slot: usize,
}

/// One slot; the call's bits say whether it is free, running or waiting.
#[derive(Clone, Copy, Debug)]
struct Live {
    /// Running: when it times out. Waiting: when its replacement is due.
    at: Ns,
    attempt: u32,
    number: u32,
}

/// What the call does about its next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing: it waits for outcomes.
    Idle,
    /// A retry is due at `at`.
    Retry { paid: bool },
    /// A hedge is due at `at`; `pushback`: because a server asked for that moment.
    Hedge { pushback: bool },
    /// A hedge that is paid for is due at `at`, and not before `ready`, when its debt is over.
    Lent { ready: Ns },
    /// The strategy is being asked.
    Asking,
    /// The throttle will answer.
    Granting(Wanted),
}

/// What the throttle is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    cost: Cost,
    /// How long to wait once it has agreed.
    after: Ns,
    /// The moment before which a server does not want the next hedge; 0: it did not say.
    not_before: Ns,
}

impl Wanted {
    const fn new(kind: Kind, after: Ns) -> Self {
        Wanted { cost: Cost { kind }, after, not_before: 0 }
    }
}

/// What asks for the throttle's grant or for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    None,
    Strategy,
    Throttle(Cost),
}

/// One call; `LIVE` is how many attempts can run at once: 1 for retrying.
#[derive(Clone, Debug)]
pub struct Call<'p, const LIVE: usize> {
    policy: &'p Policy,
    ledger: Ledger,
    live: [Live; LIVE],
    /// Slots whose attempt runs.
    running: u32,
    /// Slots whose attempt provably did not run, and whose replacement waits.
    waiting: u32,
    /// Slots to cancel and to start, as bits: pending commands are state, not a queue.
    cancels: u32,
    starts: u32,
    question: Question,
    phase: Phase,
    /// When the phase's timer is due.
    at: Ns,
    deadline: Ns,
    attempts_max: u32,
    /// Attempts started, replacements included.
    started: u32,
    /// Replacements of what was never sent.
    unsent: u32,
    /// Whether what was not processed has been replaced.
    unprocessed: bool,
    /// The next attempt to start is the last: what was written is no longer kept.
    sealed: bool,
    /// What stopped further hedges first (ruling G22).
    stopped: Option<Why>,
    /// The last failure, and whose it was.
    failure: Failure,
    failed: Option<(u32, usize)>,
    end: Option<End>,
    /// Whether the end has been handed out.
    over: bool,
}

impl<'p, const LIVE: usize> Call<'p, LIVE> {
    /// A call that begins now and starts its first attempt.
    pub fn begin(policy: &'p Policy, terms: Terms, now: Ns, world: &mut impl World) -> Self {
        let Terms { deadline, idempotent, sealed, asks } = terms;
        const { assert!(LIVE >= 1 && LIVE <= LIVE_MAX) };
        let free = Live { at: NEVER, attempt: 0, number: 0 };
        let mut call = Call {
            policy,
            ledger: Ledger::new(now),
            live: [free; LIVE],
            running: 0,
            waiting: 0,
            cancels: 0,
            starts: 0,
            question: Question::None,
            phase: Phase::Idle,
            at: NEVER,
            deadline: policy.deadline(now, deadline),
            attempts_max: policy.attempts_max(LIVE),
            started: 0,
            unsent: 0,
            unprocessed: false,
            sealed,
            stopped: None,
            failure: Failure::server(),
            failed: None,
            end: None,
            over: false,
        };
        debug_assert!(idempotent || policy.rules().hedge.is_none(), "a hedged call is idempotent");
        if !idempotent {
            call.ledger.set(Ledger::NOT_IDEMPOTENT);
        }
        if asks || policy.rules().asks {
            call.ledger.set(Ledger::ASKS);
        }
        let deadline = (call.deadline != NEVER).then_some(call.deadline);
        world.note(now, Note::Began { deadline, idempotent });
        if sealed {
            world.note(now, Note::Sealed);
        }
        if call.deadline <= now && policy.rules().expired == Expired::StartsNone {
            call.finish(Why::Deadline, None, now, world);
        } else {
            call.start_next(now, world);
            call.schedule_hedge(now, world);
        }
        call.check();
        call
    }

    /// The next command, until there is none.
    pub fn command(&mut self) -> Option<Command> {
        if self.cancels != 0 {
            let slot = self.cancels.trailing_zeros() as usize;
            self.cancels &= self.cancels - 1;
            return Some(Command::Cancel(slot));
        }
        // Slots are reused: the lowest one need not be that of the earliest start.
        if let Some(slot) = slots(self.starts).min_by_key(|&slot| self.live[slot].attempt) {
            self.starts &= !(1 << slot);
            let Live { attempt, number, .. } = self.live[slot];
            return Some(Command::Start(Start { slot, attempt, number }));
        }
        match core::mem::replace(&mut self.question, Question::None) {
            Question::None => {}
            Question::Strategy => return Some(Command::Ask(self.failure)),
            Question::Throttle(cost) => return Some(Command::Await(cost)),
        }
        match self.end {
            Some(end) if !self.over => {
                self.over = true;
                Some(Command::End(end))
            }
            _ => None,
        }
    }

    /// When [`Call::wake`] has something to do, if nothing happens before; `None`: never.
    #[must_use]
    pub fn wake_at(&self) -> Option<Ns> {
        if self.end.is_some() {
            return None;
        }
        let timers = slots(self.running | self.waiting).map(|slot| self.live[slot].at);
        let at = timers.fold(self.at.min(self.deadline), Ns::min);
        (at != NEVER).then_some(at)
    }

    /// How the call ended, if it has.
    #[must_use]
    pub const fn end(&self) -> Option<End> {
        self.end
    }

    /// When the call must end; [`NEVER`] without a deadline.
    #[must_use]
    pub const fn deadline(&self) -> Ns {
        self.deadline
    }

    /// What the call remembers.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// How many attempts have started, replacements included.
    #[must_use]
    pub const fn started(&self) -> u32 {
        self.started
    }

    /// The last failure, if there was one.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.failed.map(|_| &self.failure)
    }

    /// Whether the call belongs to one attempt.
    #[must_use]
    pub const fn is_committed(&self) -> bool {
        self.ledger.has(Ledger::COMMITTED)
    }

    /// Whether the throttle has announced an answer that is still to come.
    #[must_use]
    pub fn awaits_grant(&self) -> bool {
        matches!(self.phase, Phase::Granting { .. })
    }

    /// The attempt that runs and started next after this one, and its slot; 0 asks for the first.
    ///
    /// A driver looks at what runs in this order: of several outcomes of one moment, that of the
    /// earlier attempt counts first.
    #[must_use]
    pub fn running_after(&self, attempt: u32) -> Option<(u32, usize)> {
        let running = slots(self.running).map(|slot| (self.live[slot].attempt, slot));
        running.filter(|(other, _)| *other > attempt).min()
    }

    /// Whether an attempt runs in this slot.
    #[must_use]
    pub fn is_running(&self, slot: usize) -> bool {
        slot < LIVE && self.running & 1 << slot != 0
    }

    /// The outcome of the attempt in this slot is there.
    pub fn outcome(&mut self, slot: usize, judgement: Judgement, now: Ns, world: &mut impl World) {
        if self.end.is_some() || !self.is_running(slot) {
            debug_assert!(self.end.is_some(), "an outcome without an attempt");
            return;
        }
        let Live { attempt, number, .. } = self.live[slot];
        world.note(now, Note::Outcome { attempt, judgement });
        self.free(slot);
        match judgement.directive {
            Directive::Succeed => self.finish(Why::Succeeded, Some((attempt, slot)), now, world),
            _ if self.replace(slot, number, attempt, judgement.proof, now, world) => {}
            Directive::Fail => {
                if judgement.drains {
                    world.failed();
                }
                self.finish(Why::Fatal, Some((attempt, slot)), now, world);
            }
            Directive::Retry(failure) => self.retry_or_hedge((attempt, slot), failure, now, world),
        }
        self.check();
    }

    /// The response of the attempt in this slot has begun: the call belongs to it (ruling G6).
    pub fn committed(&mut self, slot: usize, now: Ns, world: &mut impl World) {
        if self.end.is_some() || !self.is_running(slot) {
            return;
        }
        self.commit(slot, now, world);
        self.check();
    }

    /// What the application wrote can no longer be kept. The call belongs to the attempt in `slot`;
    /// if none is in flight, the next one to start is the last (ruling G24).
    pub fn sealed(&mut self, slot: Option<usize>, now: Ns, world: &mut impl World) {
        if self.end.is_some() || self.is_committed() || self.sealed {
            return;
        }
        world.note(now, Note::Sealed);
        match slot {
            Some(slot) if self.is_running(slot) => self.commit(slot, now, world),
            // Of all that waits, what is due first starts first, and its commit drops the rest. Until
            // then the rest stays: if that was a hedge, the throttle may refuse it (G14).
            _ => self.sealed = true,
        }
        self.check();
    }

    /// Time has passed: the deadline, attempts' own timeouts, replacements, retries and hedges that
    /// are due happen now.
    pub fn wake(&mut self, now: Ns, world: &mut impl World) {
        while self.wake_once(now, world) {}
    }

    /// Of all that is due now, the first thing happens; false if nothing is due.
    ///
    /// A driver that can know the outcome of what this starts at the same moment reports it before
    /// it goes on: outcomes come before timers (P4).
    pub fn wake_once(&mut self, now: Ns, world: &mut impl World) -> bool {
        if self.end.is_some() {
            return false;
        }
        if now >= self.deadline {
            self.finish(Why::Deadline, None, now, world);
            self.check();
            return true;
        }
        // The earliest first; among equals the lower number, and the next retry or hedge last.
        // What the driver has not been told to start cannot have taken its time: outcomes come
        // before timers, even where an attempt may take no time at all (P4).
        let due = slots((self.running | self.waiting) & !self.starts)
            .filter(|&slot| self.live[slot].at <= now)
            .min_by_key(|&slot| (self.live[slot].at, self.live[slot].number));
        match due {
            Some(slot) if self.live[slot].at <= self.at => self.slot_due(slot, now, world),
            _ if self.at <= now => self.phase_due(now, world),
            _ => return false,
        }
        self.check();
        true
    }

    /// The strategy answered.
    pub fn answered(&mut self, advice: Advice, now: Ns, world: &mut impl World) {
        if self.end.is_some() || self.phase != Phase::Asking {
            return;
        }
        world.note(now, Note::Answered(advice));
        self.phase = Phase::Idle;
        self.judge(advice, now, world);
        self.check();
    }

    /// The throttle answered what it had announced.
    pub fn granted(&mut self, grant: Grant, now: Ns, world: &mut impl World) {
        let Phase::Granting(wanted) = self.phase else {
            // Nobody waits for it any more, so that it never starts: the end gives it back (P6).
            world.granted(grant);
            if self.end.is_some() {
                world.ended();
            }
            return;
        };
        world.granted(grant);
        world.note(now, Note::Granted(grant));
        self.phase = Phase::Idle;
        self.use_grant(grant, wanted, now, world);
        self.check();
    }

    /// The application dropped the call: never a failure (ruling P6).
    pub fn cancel(&mut self, now: Ns, world: &mut impl World) {
        if self.end.is_none() {
            self.finish(Why::Cancelled, None, now, world);
        }
        self.check();
    }

    /// An attempt's own timeout, or a replacement.
    fn slot_due(&mut self, slot: usize, now: Ns, world: &mut impl World) {
        let Live { attempt, number, .. } = self.live[slot];
        if self.waiting & 1 << slot != 0 {
            self.start(slot, number, now, world);
            return;
        }
        world.note(now, Note::TimedOut { attempt });
        self.stop(slot, now, world);
        match self.policy.rules().timed_out {
            TimedOut::End => self.finish(Why::Deadline, None, now, world),
            TimedOut::Retry => {
                self.retry_or_hedge((attempt, slot), Failure::timeout(), now, world);
            }
        }
    }

    /// A retry or hedge is due.
    fn phase_due(&mut self, now: Ns, world: &mut impl World) {
        self.at = NEVER;
        match core::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Retry { paid: true } => self.start_next(now, world),
            Phase::Retry { paid: false } => {
                let wanted = Wanted::new(self.failure.kind, 0);
                let grant = decide::ask(world, wanted.cost, now);
                self.use_grant(grant, wanted, now, world);
            }
            Phase::Hedge { .. } => self.hedge(Kind::Timeout, now, world),
            Phase::Lent { .. } => {
                self.start_next(now, world);
                self.schedule_hedge(now, world);
            }
            Phase::Idle | Phase::Asking | Phase::Granting(_) => {}
        }
    }

    /// A failure that may be retried.
    fn retry_or_hedge(
        &mut self,
        who: (u32, usize),
        failure: Failure,
        now: Ns,
        world: &mut impl World,
    ) {
        self.failure = failure;
        self.failed = Some(who);
        if self.policy.rules().hedge.is_some() && !self.is_committed() {
            self.hedge_failed(now, world);
        } else {
            self.judge(Advice::None, now, world);
        }
    }

    fn judge(&mut self, advice: Advice, now: Ns, world: &mut impl World) {
        let failure = self.failure;
        let deadline = self.deadline;
        match decide(self.policy, &mut self.ledger, &failure, advice, now, deadline, world) {
            Verdict::Retry { after, paid } => self.retry_after(after, paid, now, world),
            Verdict::Later { after } => {
                let wanted = Wanted::new(failure.kind, after);
                self.phase = Phase::Granting(wanted);
                self.question = Question::Throttle(wanted.cost);
            }
            Verdict::Ask => {
                world.note(now, Note::Asked(failure));
                self.phase = Phase::Asking;
                self.question = Question::Strategy;
            }
            Verdict::End(why) => self.finish(why, self.failed, now, world),
        }
    }

    fn retry_after(&mut self, after: Ns, paid: bool, now: Ns, world: &mut impl World) {
        self.phase = Phase::Retry { paid };
        self.at = now.saturating_add(after);
        // P5: a zero delay needs no timer; P4: at the deadline's moment nothing starts any more.
        if after == 0 && now < self.deadline {
            self.phase_due(now, world);
        }
    }

    /// Does what a grant allows: the retry or hedge starts now, after a while, or not at all.
    fn use_grant(&mut self, grant: Grant, wanted: Wanted, now: Ns, world: &mut impl World) {
        let hedges = self.policy.rules().hedge.is_some();
        let after = match grant {
            Grant::Now(_) => wanted.after,
            Grant::After(debt, _) => wanted.after.saturating_add(debt),
            Grant::Later => {
                self.phase = Phase::Granting(wanted);
                self.question = Question::Throttle(wanted.cost);
                return;
            }
            Grant::Refused if hedges => {
                self.stopped.get_or_insert(Why::Throttled);
                self.end_if_nothing_is_left(now, world);
                return;
            }
            Grant::Refused => {
                self.finish(Why::Throttled, self.failed, now, world);
                return;
            }
        };
        if hedges {
            let ready = now.saturating_add(after);
            self.phase = Phase::Lent { ready };
            self.at = ready.max(wanted.not_before);
            self.send_if_due(now, world);
        } else if decide::is_late(self.policy, now.saturating_add(after), self.deadline) {
            self.finish(Why::Deadline, self.failed, now, world);
        } else {
            self.retry_after(after, true, now, world);
        }
    }

    /// A hedge failed and others may still answer (rulings G17 to G19, G22).
    fn hedge_failed(&mut self, now: Ns, world: &mut impl World) {
        world.failed();
        let failure = self.failure;
        // A hedge that the throttle has in hand, or that a server wants later, is not shortened.
        let fixed = matches!(
            self.phase,
            Phase::Hedge { pushback: true } | Phase::Lent { .. } | Phase::Granting(_)
        );
        match failure.hint {
            _ if self.stopped.is_some() => {}
            Hint::Stop => {
                self.stopped = Some(Why::Refused);
                self.drop_what_waits();
            }
            Hint::After(wish) => {
                let most = match self.policy.rules().hint {
                    HintRule::Exact(Some(most)) => ns(most),
                    _ => NEVER,
                };
                let at = now.saturating_add(ns(wish).min(most));
                match &mut self.phase {
                    Phase::Granting(wanted) => wanted.not_before = at,
                    Phase::Lent { ready } => self.at = at.max(*ready),
                    phase => {
                        *phase = Phase::Hedge { pushback: true };
                        self.at = at;
                    }
                }
                self.send_if_due(now, world);
            }
            Hint::None if fixed => {}
            Hint::None if now < self.deadline => self.hedge(failure.kind, now, world),
            // Nothing starts at the deadline's moment, which ends the call now.
            Hint::None => {
                self.phase = Phase::Hedge { pushback: false };
                self.at = now;
            }
        }
        self.end_if_nothing_is_left(now, world);
    }

    /// Sends the next hedge, if the throttle allows it (ruling G14).
    fn hedge(&mut self, kind: Kind, now: Ns, world: &mut impl World) {
        self.phase = Phase::Idle;
        self.at = NEVER;
        let wanted = Wanted::new(kind, 0);
        let grant = decide::ask(world, wanted.cost, now);
        self.use_grant(grant, wanted, now, world);
    }

    /// Sends a hedge that is due at once, without a timer (P5).
    fn send_if_due(&mut self, now: Ns, world: &mut impl World) {
        if self.at <= now && now < self.deadline {
            self.phase_due(now, world);
        }
    }

    /// Arms the next hedge, or sends it at once if hedges have no delay.
    fn schedule_hedge(&mut self, now: Ns, world: &mut impl World) {
        let Some(delay) = self.policy.rules().hedge else { return };
        if self.end.is_some() || self.is_committed() || self.stopped.is_some() {
            return;
        }
        match ns(delay) {
            // G16: without a delay all start in the same moment; each asks for the next.
            0 if now < self.deadline => self.hedge(Kind::Timeout, now, world),
            delay => {
                self.phase = Phase::Hedge { pushback: false };
                self.at = now.saturating_add(delay);
            }
        }
    }

    /// Ends a hedged call of which nothing runs and nothing is to come (ruling G21).
    fn end_if_nothing_is_left(&mut self, now: Ns, world: &mut impl World) {
        if self.end.is_none() && self.running | self.waiting == 0 && self.phase == Phase::Idle {
            let why = self.stopped.unwrap_or(Why::Attempts);
            self.finish(why, self.failed, now, world);
        }
    }

    /// Arranges a transparent replacement if there is proof, and one is left (G26 to G29).
    fn replace(
        &mut self,
        slot: usize,
        number: u32,
        attempt: u32,
        proof: Option<Proof>,
        now: Ns,
        world: &mut impl World,
    ) -> bool {
        let Some(proof) = proof else { return false };
        if !self.policy.rules().replaces || self.is_committed() {
            return false;
        }
        let after = match proof {
            Proof::Unprocessed if self.unprocessed => return false,
            Proof::Unprocessed => {
                self.unprocessed = true;
                0
            }
            Proof::Unsent if self.unsent >= UNSENT_MAX => return false,
            Proof::Unsent => {
                self.unsent += 1;
                unsent_pause(self.unsent)
            }
        };
        world.note(now, Note::Replacing { attempt, after, proof });
        let at = now.saturating_add(after);
        self.live[slot] = Live { at, attempt, number };
        self.waiting |= 1 << slot;
        if after == 0 && now < self.deadline {
            self.start(slot, number, now, world);
        }
        true
    }

    /// Starts the next attempt that counts.
    fn start_next(&mut self, now: Ns, world: &mut impl World) {
        let slot = (self.running | self.waiting).trailing_ones() as usize;
        if slot >= LIVE {
            debug_assert!(false, "no slot for another attempt");
            return;
        }
        self.ledger.attempts = self.ledger.attempts.saturating_add(1);
        if self.started > 0 {
            world.started();
        }
        if self.policy.rules().hedge.is_some() && self.ledger.attempts >= self.attempts_max {
            self.stopped.get_or_insert(Why::Attempts);
        }
        self.start(slot, self.ledger.attempts, now, world);
    }

    fn start(&mut self, slot: usize, number: u32, now: Ns, world: &mut impl World) {
        debug_assert!(self.end.is_none() && !self.is_committed(), "a start after commit or end");
        self.started = self.started.saturating_add(1);
        let timeout = self.policy.rules().attempt_timeout;
        let at = timeout.map_or(NEVER, |timeout| now.saturating_add(ns(timeout)));
        let attempt = self.started;
        self.live[slot] = Live { at, attempt, number };
        self.running |= 1 << slot;
        self.waiting &= !(1 << slot);
        self.starts |= 1 << slot;
        world.note(now, Note::Started { attempt, number });
        if self.sealed {
            self.commit(slot, now, world);
        }
    }

    fn commit(&mut self, slot: usize, now: Ns, world: &mut impl World) {
        if self.is_committed() {
            return;
        }
        self.ledger.set(Ledger::COMMITTED);
        world.note(now, Note::Committed { attempt: self.live[slot].attempt });
        self.drop_what_waits();
        self.stop_all_but(Some(slot), now, world);
    }

    fn drop_what_waits(&mut self) {
        self.phase = Phase::Idle;
        self.at = NEVER;
        self.question = Question::None;
    }

    fn stop_all_but(&mut self, keep: Option<usize>, now: Ns, world: &mut impl World) {
        for slot in slots(self.running | self.waiting) {
            if Some(slot) != keep {
                self.stop(slot, now, world);
            }
        }
    }

    /// Cancels what runs in a slot and forgets what waits there.
    fn stop(&mut self, slot: usize, now: Ns, world: &mut impl World) {
        if self.running & 1 << slot != 0 {
            world.note(now, Note::Cancelled { attempt: self.live[slot].attempt });
            // An attempt that the driver has not even been told of needs no cancelling.
            if self.starts & 1 << slot == 0 {
                self.cancels |= 1 << slot;
            }
            self.starts &= !(1 << slot);
        }
        self.free(slot);
    }

    fn free(&mut self, slot: usize) {
        self.running &= !(1 << slot);
        self.waiting &= !(1 << slot);
    }

    fn finish(&mut self, why: Why, who: Option<(u32, usize)>, now: Ns, world: &mut impl World) {
        self.drop_what_waits();
        self.stop_all_but(None, now, world);
        if why == Why::Succeeded {
            world.succeeded();
        } else {
            world.ended();
        }
        let attempt = who.map(|(attempt, _)| attempt);
        self.end = Some(End { why, attempt, slot: who.map_or(0, |(_, slot)| slot) });
        world.note(now, Note::Ended { why, attempt });
    }

    /// The invariants at the head of this file.
    fn check(&self) {
        let running = (self.running | self.waiting).count_ones();
        debug_assert!(self.running & self.waiting == 0, "a slot both runs and waits");
        debug_assert!(self.ledger.attempts <= self.attempts_max, "attempts above the limit");
        debug_assert!(
            self.at == NEVER
                || matches!(
                    self.phase,
                    Phase::Retry { .. } | Phase::Hedge { .. } | Phase::Lent { .. }
                ),
            "a timer that can do nothing"
        );
        if self.end.is_some() {
            debug_assert!(running == 0 && self.starts == 0, "an attempt outlives its call");
            debug_assert!(self.phase == Phase::Idle, "an ended call waits");
        } else {
            debug_assert!(running > 0 || self.phase != Phase::Idle, "nothing will ever happen");
            debug_assert!(!self.is_committed() || running == 1, "a committed call has one attempt");
        }
    }
}

/// The slots of these bits, in order.
fn slots(mut bits: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let slot = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (slot < u32::BITS).then_some(slot as usize)
    })
}

/// The pause before replacement `k` of what was never sent: none, 10 ms, doubled up to 1 s.
fn unsent_pause(k: u32) -> Ns {
    match k {
        0 | 1 => 0,
        _ => UNSENT_FIRST.saturating_mul(1 << (k - 2).min(16)).min(UNSENT_CAP),
    }
}
