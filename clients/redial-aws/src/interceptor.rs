//! The interceptor and classifier of a client.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aws_smithy_runtime::client::retries::TokenBucket;
use aws_smithy_runtime::client::retries::classifiers::run_classifiers_on_ctx;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeSerializationInterceptorContextRef, BeforeTransmitInterceptorContextMut,
    BeforeTransmitInterceptorContextRef, FinalizerInterceptorContextRef, InterceptorContext,
};
use aws_smithy_runtime_api::client::interceptors::{
    Intercept, SharedInterceptor, dyn_dispatch_hint,
};
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use aws_smithy_runtime_api::client::retries::RequestAttempts;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::{MergeTimeoutConfig, TimeoutConfig};
use redial::external::{ExternalCall, Next};
use redial::parts::OwnedPolicy;
use redial::rules::{ChargeAt, Limits};
use redial::time::{Sleeper as _, Tokio};
use redial::{Policy, Report};
use redial_smithy::{StandardRetryStrategy, TokenOrder};

use crate::call::Call;
use crate::call_options::CallOptions;
use crate::error::SetupError;
use crate::{failure, handover};

/// The largest `max_attempts` that the SDK is given: it adds up the worst case of all attempts when it
/// resolves credentials. A policy with more attempts, or without a limit, still runs to its own limit.
pub const SDK_ATTEMPTS_MAX: u32 = 1_000;

/// The longest delay, about a hundred years: the SDK multiplies durations, which must not overflow.
const DELAY_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The name of the interceptor and of the classifier.
pub(crate) const NAME: &str = "RedialRetryInterceptor";

/// Retries the calls of an SDK client by a [`Policy`]. It is an interceptor and a retry classifier;
/// [`with_retries!`](crate::with_retries) installs both. Clones share everything.
///
/// ```
/// use aws_sdk_dynamodb::config::{BehaviorVersion, Config};
/// use redial_aws::RetryInterceptor;
///
/// let retries = RetryInterceptor::aws_2026_dynamodb();
/// let builder = Config::builder().behavior_version(BehaviorVersion::latest());
/// let config = redial_aws::with_retries!(builder, retries).build();
/// assert_eq!(config.retry_config().unwrap().max_attempts(), 4);
/// ```
#[derive(Clone)]
pub struct RetryInterceptor(Arc<Settings>);

pub(crate) struct Settings {
    policy: Arc<Policy>,
    /// The same policy, for calls that succeed at their first attempt.
    first_attempt: OwnedPolicy,
    on_end: Option<Box<OnEnd>>,
}

/// Called at the end of each call.
type OnEnd = dyn Fn(&CallEnd<'_>) + Send + Sync;

/// A call that has ended, for [`RetryInterceptor::on_end`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CallEnd<'a> {
    /// The service, as in `DynamoDB`.
    pub service: &'a str,
    /// The operation, as in `PutItem`.
    pub operation: &'a str,
    /// Attempts, elapsed time and the reason of the end.
    pub report: &'a Report,
}

impl RetryInterceptor {
    /// Retries by this policy. Clones of the policy, in other clients and other calls of the process, share
    /// its retry budget or token bucket.
    ///
    /// # Errors
    /// The policy withdraws tokens after the backoff: the SDK has no place for that decision.
    pub fn new(policy: Policy) -> Result<Self, SetupError> {
        if policy.rules().charge_at == ChargeAt::AfterBackoff {
            return Err(SetupError::ChargedAfterBackoff);
        }
        let first_attempt = OwnedPolicy::new(policy.clone());
        let settings = Settings { policy: Arc::new(policy), first_attempt, on_end: None };
        Ok(RetryInterceptor(Arc::new(settings)))
    }

    /// Retries by the standard strategy with these options, with a token bucket of its own. The order is
    /// token first, unless the options say otherwise.
    ///
    /// # Errors
    /// The options contradict each other, or their order is backoff first.
    pub fn standard(mut strategy: StandardRetryStrategy) -> Result<Self, SetupError> {
        strategy.order.get_or_insert(TokenOrder::TokenFirst);
        RetryInterceptor::new(strategy.policy()?)
    }

    /// Retries by the AWS SDKs' rules of 2026 (decision S6), with a token bucket of its own.
    #[must_use]
    pub fn aws_2026() -> Self {
        RetryInterceptor::preset(StandardRetryStrategy::aws_2026())
    }

    /// Retries by the AWS SDKs' rules of 2026 for `DynamoDB` (decision S6), with a token bucket of its own.
    #[must_use]
    pub fn aws_2026_dynamodb() -> Self {
        RetryInterceptor::preset(StandardRetryStrategy::aws_2026_dynamodb())
    }

    /// Retries by the values of Smithy's standard strategy (decision S1), token first, with a token bucket
    /// of its own that refills over time.
    #[must_use]
    pub fn smithy_standard() -> Self {
        RetryInterceptor::preset(StandardRetryStrategy::standard())
    }

    fn preset(strategy: StandardRetryStrategy) -> Self {
        RetryInterceptor::standard(strategy).expect("a preset contradicts nothing")
    }

    /// Calls this function at the end of each call, with its report: for logs and metrics. Calls that the
    /// application drops are not reported.
    ///
    /// ```
    /// use redial_aws::RetryInterceptor;
    ///
    /// let retries = RetryInterceptor::aws_2026().on_end(|end| {
    ///     if end.report.attempts > 1 {
    ///         println!("{}: {} attempts, {}", end.operation, end.report.attempts, end.report.stop_reason);
    ///     }
    /// });
    /// # drop(retries);
    /// ```
    #[must_use]
    pub fn on_end(self, hook: impl Fn(&CallEnd<'_>) + Send + Sync + 'static) -> Self {
        let Settings { policy, first_attempt, .. } = &*self.0;
        let (policy, first_attempt) = (policy.clone(), first_attempt.clone());
        RetryInterceptor(Arc::new(Settings { policy, first_attempt, on_end: Some(Box::new(hook)) }))
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.0.policy
    }

    /// The interceptor for `push_interceptor` of a config builder. It cannot be turned off with
    /// `disable_interceptor`, so the SDK does not look for that in every hook of every call.
    #[must_use]
    pub fn interceptor(&self) -> SharedInterceptor {
        SharedInterceptor::permanent(self.clone())
    }

    /// The config for the client's `retry_config`: standard mode with the attempts of the policy, which the
    /// SDK sends in the header `amz-sdk-request`.
    #[must_use]
    pub fn retry_config(&self) -> RetryConfig {
        let attempts = self.0.policy.rules().attempts.unwrap_or(SDK_ATTEMPTS_MAX);
        RetryConfig::standard().with_max_attempts(attempts.min(SDK_ATTEMPTS_MAX))
    }

    /// Whether the call can start when its first attempt has failed: nothing needs its state before. Most
    /// calls then have none, which the SDK would keep in a table that grows with it.
    fn starts_after_failure(
        &self,
        context: &InterceptorContext,
        components: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> bool {
        let Settings { policy, first_attempt, on_end } = &*self.0;
        let rules = policy.rules();
        let state = cfg.interceptor_state();
        let timeout = state.load::<TimeoutConfig>().and_then(TimeoutConfig::operation_timeout);
        on_end.is_none()
            && first_attempt.starts_after_first_attempt()
            && !rules.uses_strategy
            && rules.limits == Limits::default()
            && timeout.is_none()
            && state.load::<CallOptions>().is_none()
            && is_replayable(context)
            && is_alone(components)
    }

    fn start_call(&self, context: &InterceptorContext, cfg: &mut ConfigBag) -> Call {
        let Settings { policy, on_end, .. } = &*self.0;
        // The options of the call, and the timeouts that the SDK has merged, are in this layer.
        let state = cfg.interceptor_state();
        let mut call = ExternalCall::new(policy.clone());
        if let Some(timeout) =
            state.load::<TimeoutConfig>().and_then(TimeoutConfig::operation_timeout)
        {
            call = call.deadline(timeout);
        }
        if !is_replayable(context) {
            call = call.not_replayable();
        }
        let options = state.load::<CallOptions>();
        if options.is_some_and(CallOptions::is_not_idempotent) {
            call = call.not_idempotent();
        }
        let reports = on_end.is_some() || options.is_some_and(CallOptions::wants_report);
        if reports {
            call = call.history();
        }
        Call::new(call.start(Tokio.now()), self.0.clone(), reports)
    }

    /// The state of the call, if it is this interceptor's: that of an operation takes the place of its
    /// client's.
    fn own_call<'a>(&self, cfg: &'a mut ConfigBag) -> Option<&'a mut Call> {
        cfg.get_mut_from_interceptor_state::<Call>().filter(|call| call.is_of(&self.0))
    }
}

impl Settings {
    /// Whether the policy decides about attempt timeouts.
    pub(crate) fn has_attempt_timeout(&self) -> bool {
        self.policy.rules().attempt_timeout.is_some()
    }
}

impl fmt::Debug for RetryInterceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryInterceptor").field("policy", &self.0.policy).finish_non_exhaustive()
    }
}

/// Whether no other interceptor of this crate sees the call: one of the client, and one of the operation.
fn is_alone(components: &RuntimeComponents) -> bool {
    components.interceptors().filter(|interceptor| interceptor.name() == NAME).nth(1).is_none()
}

/// Whether the SDK can send the request again.
fn is_replayable(context: &InterceptorContext) -> bool {
    context.request().is_none_or(|request| {
        let body = request.body();
        body.bytes().is_some() || body.try_clone().is_some()
    })
}

/// The number of the attempt.
fn attempt(cfg: &ConfigBag) -> u32 {
    cfg.load::<RequestAttempts>().map_or(1, RequestAttempts::attempts)
}

/// Whether the client or the operation has a smaller `max_attempts` than the policy, and this is the last.
fn is_last_for_sdk(cfg: &ConfigBag) -> bool {
    let most = cfg.load::<RetryConfig>().map_or(u32::MAX, RetryConfig::max_attempts);
    most < SDK_ATTEMPTS_MAX && attempt(cfg) >= most
}

/// With this config the SDK retries once more, after any delay.
static RETRY: LazyLock<RetryConfig> = LazyLock::new(|| {
    RetryConfig::standard().with_max_attempts(u32::MAX).with_max_backoff(DELAY_MAX)
});

/// With this config the SDK does not retry.
static STOP: LazyLock<RetryConfig> = LazyLock::new(RetryConfig::disabled);

/// The SDK's own retry quota does not count: the policy's throttle does.
static NO_QUOTA: LazyLock<TokenBucket> = LazyLock::new(TokenBucket::unlimited);

#[dyn_dispatch_hint]
impl Intercept for RetryInterceptor {
    fn name(&self) -> &'static str {
        NAME
    }

    /// The policy's deadline becomes the SDK's operation timeout.
    fn read_before_execution(
        &self,
        _context: &BeforeSerializationInterceptorContextRef<'_>,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(deadline) = self.0.policy.rules().deadline {
            let timeouts = cfg.load::<MergeTimeoutConfig>();
            let deadline = timeouts.operation_timeout().map_or(deadline, |it| it.min(deadline));
            // What is set here takes precedence over the operation, so it is this timeout alone.
            let timeouts = TimeoutConfig::builder().operation_timeout(deadline).build();
            cfg.interceptor_state().store_put(timeouts);
        }
        Ok(())
    }

    fn modify_before_retry_loop(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        components: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(timeout) = self.0.policy.rules().attempt_timeout {
            let timeouts =
                cfg.load::<TimeoutConfig>().cloned().unwrap_or_else(TimeoutConfig::disabled);
            let timeout =
                timeouts.operation_attempt_timeout().map_or(timeout, |it| it.min(timeout));
            let timeouts = timeouts.to_builder().operation_attempt_timeout(timeout).build();
            cfg.interceptor_state().store_put(timeouts);
        }
        if !self.starts_after_failure(context.inner(), components, cfg) {
            // The interceptor of an operation comes after that of its client and takes its place.
            let call = self.start_call(context.inner(), cfg);
            cfg.interceptor_state().store_put(call);
        }
        Ok(())
    }

    fn read_before_attempt(
        &self,
        _context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if self.own_call(cfg).is_some()
            && attempt(cfg) > 1
            && let Some(call) = self.own_call(cfg)
            && let Some(config) = call.start_attempt()
        {
            cfg.interceptor_state().store_put(config);
        }
        Ok(())
    }

    fn read_after_attempt(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        components: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let context = context.inner();
        // A request that is only signed has no output.
        let has_output = !context.is_failed() && context.output_or_error().is_some();
        if cfg.interceptor_state().load::<Call>().is_none() {
            if has_output {
                self.0.first_attempt.succeeded();
            }
            if !context.is_failed() {
                return Ok(());
            }
            let call = self.start_call(context, cfg);
            cfg.interceptor_state().store_put(call);
        }
        let Some(call) = self.own_call(cfg) else { return Ok(()) };
        if has_output {
            call.succeed();
        }
        if !context.is_failed() {
            return Ok(());
        }
        let action = run_classifiers_on_ctx(components.retry_classifiers(), context);
        let next = call.end_attempt(context, failure::directive(context, &action));
        match next {
            Next::Wait(delay) if !is_last_for_sdk(cfg) => {
                let config = cfg.load::<RetryConfig>().cloned();
                if let Some(call) = self.own_call(cfg) {
                    call.keep_retry_config(config);
                }
                cfg.interceptor_state().store_put(RETRY.clone());
                cfg.interceptor_state().store_put(NO_QUOTA.clone());
                handover::put(context, delay);
            }
            _ => {
                cfg.interceptor_state().store_put(STOP.clone());
            }
        }
        Ok(())
    }

    fn read_after_execution(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let Some(call) = self.own_call(cfg) else { return Ok(()) };
        // The operation timed out after the decision.
        let _ = handover::take(context.inner());
        call.end(context.inner());
        let Some(report) = call.take_report() else { return Ok(()) };
        if let Some(on_end) = &self.0.on_end {
            let (service, operation) = match cfg.load::<Metadata>() {
                Some(metadata) => (metadata.service(), metadata.name()),
                None => ("", ""),
            };
            on_end(&CallEnd { service, operation, report: &report });
        }
        if let Some(options) = cfg.load::<CallOptions>() {
            options.set_report(report);
        }
        Ok(())
    }
}
