//! What a hook learns beside the event.

use redial_core::Ns;

use crate::policy_name::PolicyName;

/// The time of an event and the call that it belongs to, for a hook of
/// [`Retry::on_event`](crate::Retry::on_event).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EventContext<'a> {
    /// The time, in nanoseconds of the clock of the call ([`Sleeper::now`](crate::time::Sleeper::now)). Its origin
    /// is arbitrary: subtract the time of the first event, which is
    /// [`Event::CallStarted`](crate::Event::CallStarted), for the time since the call started.
    pub at: Ns,
    /// The name of the policy, as in [`Report::policy`](crate::Report::policy).
    pub policy: &'a PolicyName,
    /// The text of the last error of the operation, for a call with
    /// [`record_errors`](crate::Retry::record_errors); `None` if the last attempt that ended has no error.
    pub error: Option<&'a str>,
}
