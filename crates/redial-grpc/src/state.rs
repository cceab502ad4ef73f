//! One call: the machine, what it is granted, and its timer. It goes from the response's future
//! into the response's body when the call belongs to an attempt.
//!
//! Invariant: nothing is decided here. Every start, delay, cancel and end is the machine's.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use redial::code::Code;
use redial_core::{
    Call, Command, Dealings, Directive, End, Judgement, LIVE_MAX, NEVER, Note, Ns, Outside, Terms,
    Why, duration, ns,
};
use redial_service_config::Plan;
use tokio::time::{Instant, Sleep};

use crate::backends::UsedBackends;
use crate::methods::PlanRef;
use crate::observe::Observer;
use crate::options::CallDiary;
use crate::sizes::Sizes;
use crate::statistics::CallTally;
use crate::tape::MayFail;
use crate::template::Template;
use crate::throttle::Throttle;

/// The machine with room for as many attempts at once as its policy needs.
// The small one is what nearly every call has, and a box around it would cost each of them.
#[allow(clippy::large_enum_variant)]
enum Machine {
    Retry(Call<PlanRef, 1>),
    /// In a box: it is five times as large.
    Hedge(Box<Call<PlanRef, LIVE_MAX>>),
}

/// Does the same with either machine.
macro_rules! with {
    ($machine:expr, $call:ident => $do:expr) => {
        match $machine {
            Machine::Retry($call) => $do,
            Machine::Hedge($call) => $do,
        }
    };
}

/// Where draws come from, and who reads the notes.
struct Book {
    method: PlanRef,
    tally: CallTally,
    hedged: bool,
    diary: Option<CallDiary>,
    observer: Observer,
}

impl Outside for Book {
    fn draw(&mut self) -> f64 {
        redial::draw()
    }

    // Where a note is written it is known which, and most mean nothing here.
    #[inline]
    fn note(&mut self, at: Ns, note: Note) {
        let Book { method, tally, observer, .. } = self;
        tally.note(&note, self.hedged, |happened| {
            method.counters().add(happened);
            observer.happened(happened);
        });
        self.observer.note(at, &note);
        if let Some(diary) = &self.diary {
            diary.push(at, note);
        }
    }
}

/// A clock that counts from the moment at which its layer was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Clock(Instant::now())
    }

    pub(crate) fn now(self) -> Ns {
        ns(Instant::now().saturating_duration_since(self.0))
    }

    fn at(self, moment: Ns) -> Instant {
        // What no clock can show is as good as never.
        self.0.checked_add(duration(moment)).unwrap_or_else(|| self.0 + FAR)
    }
}

/// Thirty years: what tokio takes for a time that never comes.
const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);

/// What a call is begun with.
pub(crate) struct Begin {
    pub(crate) method: PlanRef,
    pub(crate) template: Template,
    pub(crate) used: Option<UsedBackends>,
    pub(crate) throttle: Throttle,
    pub(crate) terms: Terms,
    pub(crate) wait_for_ready: bool,
    pub(crate) diary: Option<CallDiary>,
    pub(crate) observer: Observer,
    pub(crate) clock: Clock,
}

/// One call.
pub(crate) struct State {
    machine: Machine,
    world: Dealings<Throttle, Book>,
    clock: Clock,
    /// When the machine was last told something.
    seen: Ns,
    /// Whether somebody reads the notes, who wants to know when.
    observed: bool,
    timer: Timer,
    /// The timer fired, and the connection had a turn since.
    yielded: bool,
    /// What further attempts are made of, as long as there may be any.
    template: Option<Template>,
    /// The backends that the attempts went to, if they are to know.
    used: Option<UsedBackends>,
    pub(crate) wait_for_ready: bool,
    /// The number of the attempt that the call belongs to, as the application was told.
    pub(crate) number: u32,
    /// The application's body, as long as it may still fail after the call belongs to an attempt.
    pub(crate) body: Option<Arc<dyn MayFail>>,
    /// In a box: few configs have such a limit.
    pub(crate) response_sizes: Option<Box<Sizes>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("end", &self.end()).finish_non_exhaustive()
    }
}

impl State {
    pub(crate) fn begin(begin: Begin) -> Self {
        let Begin { method, template, throttle, terms, wait_for_ready, diary, .. } = begin;
        let Begin { mut observer, clock, used, .. } = begin;
        let hedged = method.plan().is_hedged();
        let response_sizes = method.response_max().map(|max| Box::new(Sizes::new(max)));
        // Who runs against no clock and tells nobody needs none until something fails.
        let timed = hedged || terms.deadline.is_some() || method.rules().deadline.is_some();
        let observed = diary.is_some() || observer.is_listened_to();
        let now = if timed || observed { clock.now() } else { 0 };
        if !observed {
            observer.has_no_clock();
        }
        let tally = CallTally::default();
        let book = Book { method: method.clone(), tally, hedged, diary, observer };
        let mut world = Dealings::new(throttle, book);
        let machine = if hedged {
            Machine::Hedge(Box::new(Call::begin(method, terms, now, &mut world)))
        } else {
            Machine::Retry(Call::begin(method, terms, now, &mut world))
        };
        let timer = Timer::default();
        State {
            machine,
            world,
            clock,
            seen: now,
            observed,
            timer,
            yielded: false,
            template: Some(template),
            used,
            wait_for_ready,
            number: 0,
            body: None,
            response_sizes,
        }
    }

    fn policy(&self) -> &PlanRef {
        with!(&self.machine, call => call.policy())
    }

    pub(crate) fn plan(&self) -> &Plan {
        self.policy().plan()
    }

    pub(crate) fn command(&mut self) -> Option<Command> {
        with!(&mut self.machine, call => call.command())
    }

    pub(crate) fn end(&self) -> Option<End> {
        with!(&self.machine, call => call.end())
    }

    pub(crate) fn is_committed(&self) -> bool {
        with!(&self.machine, call => call.is_committed())
    }

    /// The attempt that runs and started next after this one, and its slot.
    pub(crate) fn running_after(&self, attempt: u32) -> Option<(u32, usize)> {
        with!(&self.machine, call => call.running_after(attempt))
    }

    /// How many attempts have started, replacements aside.
    pub(crate) fn attempts(&self) -> u32 {
        with!(&self.machine, call => call.ledger().attempts)
    }

    /// The request of the attempt with this number.
    pub(crate) fn request<B>(&self, number: u32, body: B) -> Option<Request<B>> {
        let usual = self.policy().usual_head();
        let template = self.template.as_ref()?;
        let mut request = template.request(usual, number, self.remaining(), body)?;
        if let Some(used) = &self.used {
            request.extensions_mut().insert(used.clone());
        }
        Some(request)
    }

    /// Whether nothing will be due as long as nothing happens.
    pub(crate) fn is_calm(&self) -> bool {
        match &self.machine {
            Machine::Retry(call) => call.wake_at().is_none(),
            // Without a delay the others are to start as soon as the first one has.
            Machine::Hedge(_) => false,
        }
    }

    /// What remains of the deadline now.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let deadline = with!(&self.machine, call => call.deadline());
        (deadline != NEVER).then(|| duration(deadline.saturating_sub(self.seen)))
    }

    /// Whether a timer that was set to what remained may fire now: `grpc-timeout` is rounded down,
    /// by less than one part in 50,000.
    pub(crate) fn is_late(&mut self) -> bool {
        let now = self.look();
        let (began, deadline) =
            with!(&self.machine, call => (call.ledger().start, call.deadline()));
        deadline.saturating_sub(now) <= now.saturating_sub(began) / 50_000
    }

    /// Ends the call for a reason of the application's, while no attempt runs.
    pub(crate) fn cancel(&mut self, code: Code) {
        self.world.outside.observer.ends_with(code);
        let now = self.look();
        with!(&mut self.machine, call => call.cancel(now, &mut self.world));
    }

    /// What is told of the call while it runs.
    pub(crate) fn observer(&self) -> &Observer {
        &self.world.outside.observer
    }

    /// The response's body brought this.
    pub(crate) fn received(&mut self, data: &Bytes) {
        self.world.outside.observer.received(data);
    }

    /// An attempt's outcome is there. A failure that comes after the deadline was overtaken by it: a
    /// server that keeps to `grpc-timeout` gives up in the same moment, and may be heard first.
    pub(crate) fn outcome(&mut self, slot: usize, code: Code, judgement: Judgement) {
        if judgement.directive != Directive::Succeed {
            let now = self.look();
            if now > with!(&self.machine, call => call.deadline()) {
                with!(&mut self.machine, call => call.wake_once(now, &mut self.world));
                return;
            }
        }
        self.world.outside.observer.saw(code);
        let now = self.look_if_observed();
        with!(&mut self.machine, call => call.outcome(slot, judgement, now, &mut self.world));
    }

    /// The outcome of the attempt that the call belongs to.
    pub(crate) fn ended(&mut self, code: Code, judgement: Judgement) {
        // A call that belongs to an attempt has no other.
        if let Some((_, slot)) = self.running_after(0) {
            self.outcome(slot, code, judgement);
        }
    }

    /// Whether the deadline ended the call.
    pub(crate) fn is_out_of_time(&self) -> bool {
        self.end().is_some_and(|end| end.why == Why::Deadline)
    }

    pub(crate) fn committed(&mut self, slot: usize, number: u32) {
        let now = self.look_if_observed();
        with!(&mut self.machine, call => call.committed(slot, now, &mut self.world));
        self.number = number;
        self.template = None;
    }

    pub(crate) fn sealed(&mut self, slot: Option<usize>) {
        let now = self.look();
        with!(&mut self.machine, call => call.sealed(slot, now, &mut self.world));
    }

    /// The deadline passed, whatever our own clock says: a timer below has told.
    pub(crate) fn deadline_passed(&mut self) {
        let deadline = with!(&self.machine, call => call.deadline());
        self.seen = self.look().max(deadline);
        with!(&mut self.machine, call => call.wake_once(self.seen, &mut self.world));
    }

    /// Does what is due; ready if something was.
    pub(crate) fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = with!(&self.machine, call => call.wake_at()) else {
            return Poll::Pending;
        };
        std::task::ready!(self.timer.poll(at, self.clock, &mut self.yielded, cx));
        let now = self.look().max(at);
        self.seen = now;
        with!(&mut self.machine, call => call.wake_once(now, &mut self.world));
        Poll::Ready(())
    }

    /// Nobody needs what the application still writes. A connection that sends it would keep the
    /// stream open, whoever dropped the response.
    pub(crate) fn abandon_body(&mut self) {
        if let Some(body) = self.body.take() {
            body.abandon();
        }
    }

    /// The moment, where it only matters to who reads the notes.
    fn look_if_observed(&mut self) -> Ns {
        if self.observed { self.look() } else { self.seen }
    }

    fn look(&mut self) -> Ns {
        self.seen = self.seen.max(self.clock.now());
        self.seen
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // Dropped before its end: the application cancelled it (P6).
        if self.end().is_none() {
            let now = self.look_if_observed();
            with!(&mut self.machine, call => call.cancel(now, &mut self.world));
            self.abandon_body();
        }
    }
}

/// The one timer of a call.
#[derive(Default)]
struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    at: Ns,
}

impl Timer {
    fn poll(&mut self, at: Ns, clock: Clock, yielded: &mut bool, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.sleep {
            Some(sleep) if self.at != at => {
                sleep.as_mut().reset(clock.at(at));
                *yielded = false;
            }
            Some(_) => {}
            none => *none = Some(Box::pin(tokio::time::sleep_until(clock.at(at)))),
        }
        self.at = at;
        let Some(sleep) = &mut self.sleep else { return Poll::Pending };
        std::task::ready!(sleep.as_mut().poll(cx));
        // An answer of the same moment may be on its way through the connection's task: outcomes
        // come before timers (P4), so that task gets one turn.
        if std::mem::replace(yielded, true) {
            *yielded = false;
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
