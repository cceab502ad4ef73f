//! gRPC's retry and hedging (A6) as a layer around a tonic channel, or any gRPC service over HTTP/2.

mod answer;
mod body;
mod config_file;
mod control;
mod evidence;
mod future;
mod layer;
mod meter;
mod methods;
mod observe;
mod options;
mod pool;
#[cfg(feature = "tonic")]
pub mod server;
mod shared;
mod sizes;
mod state;
mod statistics;
mod sync;
mod tape;
mod template;
mod throttle;
mod timeout;
mod watch;
mod wrap;

pub use body::ResponseBody;
pub use config_file::ConfigFileError;
pub use control::Control;
pub use future::ResponseFuture;
pub use layer::{RetryLayer, RetryLayerBuilder, RetryService};
pub use methods::METHODS_MAX;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
pub use observe::Measure;
pub use options::{CallDiary, CallOptions};
pub use redial::BoxError;
pub use redial_service_config::{Client, Jitter, Late, Problem, Problems, Retries, ServiceConfig};
pub use statistics::MethodStatistics;
pub use tape::{Replay, ReplayError};
pub use watch::{ConfigWatch, WATCH_MIN};
pub use wrap::{Bodies, Ended, Tonic, Wrapping};

/// How many attempts a call took, the first included: in the extensions of a response that was not
/// the first attempt's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts(pub u32);
