//! What a client says about retries, beside the service config.

use std::time::Duration;

use redial_core::{DeadlineAction, Jitter, PolicyError};

/// The most attempts that a client makes unless it says otherwise (A6, "Validation of retryPolicy").
pub const ATTEMPTS_CAP: u32 = 5;
/// How many bytes one call may keep for a repetition unless the client says otherwise (decision G25).
pub const PER_RPC_BUFFER_LIMIT: u64 = 1 << 20;
/// How many bytes all calls of a channel may keep unless the client says otherwise (decision G25).
pub const RETRY_BUFFER_SIZE: u64 = 16 << 20;

/// Which repetitions a client allows (decisions G12 and G29).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Retries {
    /// All: those of the config, and transparent ones.
    #[default]
    All,
    /// Transparent ones only: what provably did not run.
    Transparent,
    /// None: nothing is repeated, nothing is kept, and nothing is counted.
    Off,
}

/// A timeout for each attempt of a call: an extension of gRPC, which the service config does not
/// have (decision G42). It cancels an attempt that has no response headers by then, with
/// `DEADLINE_EXCEEDED`.
///
/// An attempt that timed out may have run, so the call ends with that status, unless
/// [`retryable`](AttemptTimeout::retryable) says otherwise and the policy lists
/// `DEADLINE_EXCEEDED`.
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
    /// Cancels an attempt that has no response headers after this long, which ends the call.
    #[must_use]
    pub const fn after(after: Duration) -> Self {
        AttemptTimeout { after, retryable: false }
    }

    /// The same, where an attempt that timed out may be retried like one that failed with
    /// `DEADLINE_EXCEEDED`: only use it for methods that are idempotent.
    #[must_use]
    pub const fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }
}

/// What a client says about retries. The config is the service owner's word, this the client's.
///
/// | option | default | why |
/// | --- | --- | --- |
/// | `attempts_cap` | 5 | A6: a larger number in a config means this |
/// | `jitter` | [`Jitter::Full`] | as A6 has it; `Proportional(0.2)` is what gRPC's own libraries do today |
/// | `late` | [`DeadlineAction::WaitForDeadline`] | gRPC ends at the deadline, not before it |
/// | `per_rpc_buffer_limit_in_bytes` | 1 MiB | one large call does not take the room of all others |
/// | `retry_buffer_size_in_bytes` | 16 MiB | what a channel's calls keep together |
/// | `retries` | [`Retries::All`] | |
/// | `pushback_max` | none | a server is believed |
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
    /// The most attempts of a call, the first included, whatever the config says; hedged calls make
    /// 32 at most (decision G2).
    pub attempts_cap: u32,
    /// The randomness in a delay. A proportional one may pass the config's `maxBackoff` (decision G1).
    pub jitter: Jitter,
    /// What happens when the next retry cannot start before the deadline (decision G4).
    pub deadline_action: DeadlineAction,
    /// How many bytes one call may keep for a repetition.
    pub per_rpc_buffer_limit_in_bytes: u64,
    /// How many bytes all calls of a channel may keep.
    pub retry_buffer_size_in_bytes: u64,
    /// Which repetitions are allowed.
    pub retries: Retries,
    /// The longest delay that a server may ask for; a longer one becomes this (decision G9).
    pub pushback_max: Option<Duration>,
    /// The timeout of each attempt (decision G42).
    pub attempt_timeout: Option<AttemptTimeout>,
}

impl ClientOptions {
    const DEFAULT: ClientOptions = ClientOptions {
        attempts_cap: ATTEMPTS_CAP,
        jitter: Jitter::Full,
        deadline_action: DeadlineAction::WaitForDeadline,
        per_rpc_buffer_limit_in_bytes: PER_RPC_BUFFER_LIMIT,
        retry_buffer_size_in_bytes: RETRY_BUFFER_SIZE,
        retries: Retries::All,
        pushback_max: None,
        attempt_timeout: None,
    };

    /// A client of your own.
    pub const fn builder() -> ClientOptionsBuilder {
        ClientOptionsBuilder(ClientOptions::DEFAULT)
    }

    /// The same client, to be changed.
    pub const fn to_builder(self) -> ClientOptionsBuilder {
        ClientOptionsBuilder(self)
    }
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions::DEFAULT
    }
}

/// A [`ClientOptions`] that is being written.
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct ClientOptionsBuilder(ClientOptions);

impl ClientOptionsBuilder {
    /// The most attempts of a call, whatever the config says.
    pub const fn attempts_cap(mut self, attempts: u32) -> Self {
        self.0.attempts_cap = attempts;
        self
    }

    /// The randomness in a delay.
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.0.jitter = jitter;
        self
    }

    /// What happens when the next retry cannot start before the deadline.
    pub const fn deadline_action(mut self, deadline_action: DeadlineAction) -> Self {
        self.0.deadline_action = deadline_action;
        self
    }

    /// How many bytes one call may keep for a repetition.
    pub const fn per_rpc_buffer_limit_in_bytes(mut self, bytes: u64) -> Self {
        self.0.per_rpc_buffer_limit_in_bytes = bytes;
        self
    }

    /// How many bytes all calls of a channel may keep.
    pub const fn retry_buffer_size_in_bytes(mut self, bytes: u64) -> Self {
        self.0.retry_buffer_size_in_bytes = bytes;
        self
    }

    /// Which repetitions are allowed.
    pub const fn retries(mut self, retries: Retries) -> Self {
        self.0.retries = retries;
        self
    }

    /// The longest delay that a server may ask for.
    pub const fn pushback_max(mut self, most: Duration) -> Self {
        self.0.pushback_max = Some(most);
        self
    }

    /// The timeout of each attempt.
    pub const fn attempt_timeout(mut self, timeout: AttemptTimeout) -> Self {
        self.0.attempt_timeout = Some(timeout);
        self
    }

    /// The options.
    ///
    /// # Panics
    /// They contradict themselves; in a constant that is a compile error. Options that come from
    /// outside the program are built with [`try_build`](Self::try_build).
    #[track_caller]
    pub const fn build(self) -> ClientOptions {
        match self.try_build() {
            Ok(options) => options,
            Err(error) => panic!("{}", error.text()),
        }
    }

    /// The options.
    ///
    /// # Errors
    /// [`PolicyError::NoAttempt`]: a cap of 0. [`PolicyError::Proportion`]: a proportion of jitter outside
    /// `[0, 1]`.
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
