//! The handle with which a handler sends its headers before its first message.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use crate::IncomingRequest;

/// Lets a handler send its response headers now, where [`HoldLayer`](super::HoldLayer) holds them back.
///
/// A clone is the same handle; it may be used from any task, before or after the handler has returned.
///
/// ```
/// use redial_echo::{EchoRequest, EchoResponse};
/// use redial_grpc_server::HeaderHold;
/// use tokio_stream::StreamExt;
/// use tonic::codegen::BoxStream;
/// use tonic::{Request, Response, Status, Streaming};
///
/// async fn bidi(
///     request: Request<Streaming<EchoRequest>>,
/// ) -> Result<Response<BoxStream<EchoResponse>>, Status> {
///     // Clients wait for headers before they send anything, and this answers nothing before they do.
///     HeaderHold::of(&request).flush();
///     let answers = request.into_inner().map(|asked| {
///         Ok(EchoResponse { payload: asked?.payload, ..EchoResponse::default() })
///     });
///     Ok(Response::new(Box::pin(answers)))
/// }
/// # let _ = bidi;
/// ```
#[derive(Clone, Default)]
pub struct HeaderHold {
    shared: Option<Arc<Mutex<State>>>,
}

/// Headers go out once, so the two ways in which they are let go are one fact.
#[derive(Default)]
struct State {
    released: bool,
    /// Who waits for that.
    waker: Option<Waker>,
}

impl HeaderHold {
    /// The handle for the response to `request`.
    ///
    /// If the request did not come through a [`HoldLayer`](super::HoldLayer), nothing holds the headers
    /// back, and the handle does nothing; so a handler needs not know.
    #[must_use]
    pub fn of<R: IncomingRequest + ?Sized>(request: &R) -> Self {
        request.extension_map().get().cloned().unwrap_or_default()
    }

    /// Sends the headers, as they are, as soon as the handler has returned its response; at once if it
    /// has. From then on an error of the stream comes in trailers, and the client does not retry it. Does
    /// nothing if they were sent already.
    pub fn flush(&self) {
        let Some(shared) = &self.shared else { return };
        let waker = {
            let mut state = lock(shared);
            state.released = true;
            state.waker.take()
        };
        // Outside of the lock: a waker may run the task at once.
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn new() -> Self {
        Self { shared: Some(Arc::default()) }
    }

    pub(super) fn is_released(&self) -> bool {
        self.shared.as_ref().is_none_or(|shared| lock(shared).released)
    }

    /// As [`Self::is_released`]; if not, the task is woken when it is.
    pub(super) fn poll_released(&self, context: &Context<'_>) -> bool {
        let Some(shared) = &self.shared else { return true };
        let mut state = lock(shared);
        if !state.released {
            match &mut state.waker {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
        }
        state.released
    }
}

/// The lock, even if somebody panicked while holding it: what it guards is consistent between
/// any two statements that can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for HeaderHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeaderHold").field("released", &self.is_released()).finish()
    }
}
