//! The client's own retry settings, which the service config does not contain, and their defaults.

use std::time::Duration;

use redial_core::{DeadlineAction, Jitter, PolicyError};

/// The default cap on attempts per call (A6, "Validation of retryPolicy").
pub const ATTEMPTS_CAP_DEFAULT: u32 = 5;
/// The default replay buffer limit per call, in bytes (decision G25).
pub const PER_RPC_BUFFER_LIMIT_DEFAULT: u64 = 1 << 20;
/// The default replay buffer limit of all calls of a channel together, in bytes (decision G25).
pub const RETRY_BUFFER_SIZE_DEFAULT: u64 = 16 << 20;

/// The kinds of retries that a client enables (decisions G12 and G29).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Retries {
    /// Retries and hedging by the config, and transparent retries.
    #[default]
    All,
    /// Transparent retries only: attempts that the server provably did not process.
    Transparent,
    /// No retries: nothing is buffered for replay, and calls do not count for throttling.
    Off,
}

/// A timeout for each attempt of a call: an extension that gRPC service configs do not have (decision
/// G42). An attempt without response headers by then is cancelled with `DEADLINE_EXCEEDED`.
///
/// The server may have processed an attempt that timed out, so the call ends with that status, unless
/// the timeout is [`retryable`](AttemptTimeout::retryable) and the policy lists `DEADLINE_EXCEEDED`.
///
/// ```
/// use std::time::Duration;
///
/// use redial_service_config::{AttemptTimeout, ClientOptions};
///
/// let quick = AttemptTimeout::after(Duration::from_millis(250)).retryable();
/// let client = ClientOptions::builder().attempt_timeout(quick).build();
/// assert_eq!(client.attempt_timeout, Some(quick));
/// # Ok::<(), redial_core::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptTimeout {
    pub(crate) after: Duration,
    pub(crate) retryable: bool,
}

impl AttemptTimeout {
    /// Cancels an attempt without response headers after this duration and ends the call.
    #[must_use]
    pub const fn after(after: Duration) -> Self {
        AttemptTimeout { after, retryable: false }
    }

    /// Retries an attempt that timed out like one that failed with `DEADLINE_EXCEEDED`. Only for
    /// idempotent methods.
    #[must_use]
    pub const fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }
}

/// A client's retry settings. The service owner publishes the service config; the client sets these.
///
/// | option | default | reason |
/// | --- | --- | --- |
/// | `attempts_cap` | 5 | A6: larger numbers in a config are capped |
/// | `jitter` | [`Jitter::Full`] | as A6 specifies; `Proportional(0.2)` is the behaviour of today's gRPC libraries |
/// | `deadline_action` | [`DeadlineAction::WaitForDeadline`] | gRPC ends a call at its deadline, not before |
/// | `per_rpc_buffer_limit_in_bytes` | 1 MiB | one large call cannot use up the channel's buffer |
/// | `retry_buffer_size_in_bytes` | 16 MiB | bounds the memory of a channel |
/// | `retries` | [`Retries::All`] | |
/// | `pushback_max` | none | the server's pushback is trusted |
/// | `attempt_timeout` | none | gRPC has no such timeout |
///
/// ```
/// use redial_service_config::{ClientOptions, Jitter};
///
/// let client = ClientOptions::builder().attempts_cap(8).jitter(Jitter::Proportional(0.2)).build();
/// assert_eq!((client.attempts_cap, client.pushback_max), (8, None));
/// assert!(ClientOptions::builder().attempts_cap(0).try_build().is_err());
/// # Ok::<(), redial_core::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The cap on attempts per call, including the first, over the config's `maxAttempts`; hedged calls
    /// make at most 32 (decision G2).
    pub attempts_cap: u32,
    /// The jitter of delays. Proportional jitter may exceed the config's `maxBackoff` (decision G1).
    pub jitter: Jitter,
    /// The action when the next retry could not start before the deadline (decision G4).
    pub deadline_action: DeadlineAction,
    /// The replay buffer limit of one call, in bytes.
    pub per_rpc_buffer_limit_in_bytes: u64,
    /// The replay buffer limit of all calls of a channel together, in bytes.
    pub retry_buffer_size_in_bytes: u64,
    /// The kinds of retries that are enabled.
    pub retries: Retries,
    /// The maximum pushback delay of a server; longer ones are truncated (decision G9).
    pub pushback_max: Option<Duration>,
    /// The timeout of each attempt (decision G42).
    pub attempt_timeout: Option<AttemptTimeout>,
}

impl ClientOptions {
    const DEFAULT: ClientOptions = ClientOptions {
        attempts_cap: ATTEMPTS_CAP_DEFAULT,
        jitter: Jitter::Full,
        deadline_action: DeadlineAction::WaitForDeadline,
        per_rpc_buffer_limit_in_bytes: PER_RPC_BUFFER_LIMIT_DEFAULT,
        retry_buffer_size_in_bytes: RETRY_BUFFER_SIZE_DEFAULT,
        retries: Retries::All,
        pushback_max: None,
        attempt_timeout: None,
    };

    /// A builder with the default options.
    pub const fn builder() -> ClientOptionsBuilder {
        ClientOptionsBuilder(ClientOptions::DEFAULT)
    }

    /// A builder with these options.
    pub const fn to_builder(self) -> ClientOptionsBuilder {
        ClientOptionsBuilder(self)
    }
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions::DEFAULT
    }
}

/// Builds [`ClientOptions`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct ClientOptionsBuilder(ClientOptions);

impl ClientOptionsBuilder {
    /// The cap on attempts per call, over the config's `maxAttempts`.
    pub const fn attempts_cap(mut self, attempts: u32) -> Self {
        self.0.attempts_cap = attempts;
        self
    }

    /// The jitter of delays.
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.0.jitter = jitter;
        self
    }

    /// The action when the next retry could not start before the deadline.
    pub const fn deadline_action(mut self, deadline_action: DeadlineAction) -> Self {
        self.0.deadline_action = deadline_action;
        self
    }

    /// The replay buffer limit of one call, in bytes.
    pub const fn per_rpc_buffer_limit_in_bytes(mut self, bytes: u64) -> Self {
        self.0.per_rpc_buffer_limit_in_bytes = bytes;
        self
    }

    /// The replay buffer limit of all calls of a channel together, in bytes.
    pub const fn retry_buffer_size_in_bytes(mut self, bytes: u64) -> Self {
        self.0.retry_buffer_size_in_bytes = bytes;
        self
    }

    /// The kinds of retries that are enabled.
    pub const fn retries(mut self, retries: Retries) -> Self {
        self.0.retries = retries;
        self
    }

    /// The maximum pushback delay of a server.
    pub const fn pushback_max(mut self, most: Duration) -> Self {
        self.0.pushback_max = Some(most);
        self
    }

    /// The timeout of each attempt.
    pub const fn attempt_timeout(mut self, timeout: AttemptTimeout) -> Self {
        self.0.attempt_timeout = Some(timeout);
        self
    }

    /// Builds the options.
    ///
    /// # Panics
    /// The options are invalid; in a constant this is a compile error. For run-time values use
    /// [`try_build`](Self::try_build).
    #[track_caller]
    pub const fn build(self) -> ClientOptions {
        match self.try_build() {
            Ok(options) => options,
            Err(error) => panic!("{}", error.text()),
        }
    }

    /// Builds the options from run-time values.
    ///
    /// # Errors
    /// [`PolicyError::NoAttempt`] for a cap of 0; [`PolicyError::Proportion`] for proportional jitter
    /// outside of `[0, 1]`.
    pub const fn try_build(self) -> Result<ClientOptions, PolicyError> {
        match self.0.jitter {
            _ if self.0.attempts_cap == 0 => Err(PolicyError::NoAttempt),
            Jitter::Proportional(share) if !(share >= 0.0 && share <= 1.0) => {
                Err(PolicyError::Proportion)
            }
            _ => Ok(self.0),
        }
    }
}
