//! A call log for each request.

use std::fmt;

use redial_core::Event;

use crate::call_log::CallLog;
use crate::tower::call_options::{CallOptions, ConfigureCall};

/// Records a call log of each request; see [`RetryLayer::call_logs`](crate::tower::RetryLayer::call_logs).
#[derive(Clone, Copy)]
pub struct CallLogs<F>(pub(super) F);

impl<P, Req, F: FnMut(CallLog) + Clone + Send + 'static> ConfigureCall<P, Req> for CallLogs<F> {
    fn configure(&self, _request: &Req, options: CallOptions<P>) -> CallOptions<P> {
        let (mut sink, mut call_log) = (self.0.clone(), CallLog::default());
        options.on_event(move |context, event| {
            call_log.record(context, *event);
            if let Event::CallEnded { .. } = event {
                sink(std::mem::take(&mut call_log));
            }
        })
    }
}

impl<F> fmt::Debug for CallLogs<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLogs").finish_non_exhaustive()
    }
}
