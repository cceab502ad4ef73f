//! The handle that lets a handler send its headers before its first message.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use crate::IncomingRequest;

/// Sends response headers that [`HoldLayer`](super::HoldLayer) holds.
///
/// Clones are the same handle. It works from any task, before and after the handler has returned.
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
///     // The client waits for headers before its first message, and this handler responds only to
///     // messages.
///     HeaderHold::of(&request).flush();
///     let responses = request.into_inner().map(|request| {
///         Ok(EchoResponse { payload: request?.payload, ..EchoResponse::default() })
///     });
///     Ok(Response::new(Box::pin(responses)))
/// }
/// # let _ = bidi;
/// ```
#[derive(Clone, Default)]
pub struct HeaderHold {
    shared: Option<Arc<Mutex<State>>>,
}

/// Whether the headers were released, and the waker of the future that waits for it.
#[derive(Default)]
struct State {
    released: bool,
    waker: Option<Waker>,
}

impl HeaderHold {
    /// The handle for the response to `request`.
    ///
    /// If the request did not pass a [`HoldLayer`](super::HoldLayer), the handle does nothing, so a
    /// handler works the same with and without the layer.
    #[must_use]
    pub fn of<R: IncomingRequest + ?Sized>(request: &R) -> Self {
        request.extension_map().get().cloned().unwrap_or_default()
    }

    /// Sends the headers unchanged as soon as the handler has returned its response, or immediately
    /// if it has. After that, an error of the stream is sent in trailers, and clients do not retry
    /// it. Does nothing if the headers were already sent.
    pub fn flush(&self) {
        let Some(shared) = &self.shared else { return };
        let waker = {
            let mut state = lock(shared);
            state.released = true;
            state.waker.take()
        };
        // Outside of the lock, because a waker may run the task immediately.
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

    /// Like [`Self::is_released`], and registers the task to be woken if it is not.
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

/// Ignores lock poisoning: the guarded data is consistent between any two statements that can
/// panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for HeaderHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeaderHold").field("released", &self.is_released()).finish()
    }
}
