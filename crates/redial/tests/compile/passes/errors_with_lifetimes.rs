//! Calls whose errors contain a lifetime are `Send` where people write them: in a spawned task, in a boxed
//! future as `async_trait` makes it, in a handler that takes any async function.

use std::borrow::Cow;
use std::error::Error;
use std::pin::Pin;

use redial::{Hedged, Policy, ms};

static P: Policy = Policy::exponential(ms(1)).build();
static H: Hedged = Policy::hedged(ms(1)).build();

type BoxError = Box<dyn Error + Send + Sync>;

async fn boxed() -> Result<u32, BoxError> {
    Ok(7)
}
async fn text() -> Result<u32, &'static str> {
    Ok(7)
}
async fn cow() -> Result<u32, Cow<'static, str>> {
    Ok(7)
}

/// A task, as `tokio::spawn` takes it.
fn spawn<F: Future<Output = ()> + Send + 'static>(future: F) {
    drop(future);
}

trait Store {
    fn get<'a>(&'a self, key: &'a str) -> Pin<Box<dyn Future<Output = Result<u32, BoxError>> + Send + 'a>>;
}

struct Remote;

impl Remote {
    async fn read(&self, _key: &str) -> Result<u32, BoxError> {
        Ok(7)
    }
}

impl Store for Remote {
    fn get<'a>(&'a self, key: &'a str) -> Pin<Box<dyn Future<Output = Result<u32, BoxError>> + Send + 'a>> {
        Box::pin(async move { Ok(P.retry(|| self.read(key)).when(|_| true).await.map_err(redial::Error::boxed)?) })
    }
}

/// A handler in the manner of axum.
fn handler<F, R>(_handler: F)
where
    F: Fn(u32) -> R + Send + Sync + 'static,
    R: Future<Output = u32> + Send,
{
}

fn main() {
    spawn(async { drop(redial::retry(|| boxed()).when(|_| true).await) });
    spawn(async { drop(redial::retry(boxed).when(|_: &BoxError| true).await) });
    spawn(async { drop(P.retry(|| text()).when(|error| error.len() > 3).await) });
    spawn(async { drop(P.retry(|| cow()).when(|_| true).until(|value| *value > 3).await) });
    spawn(async { drop(P.retry(|| cow()).classify(|result: &Result<u32, _>| result.as_ref().err().map(|_| redial::Directive::Fail)).await) });
    spawn(async { drop(H.retry(|| boxed()).when(|_| true).await) });
    spawn(async { drop(P.retry_with(|_| text()).when(|_| true).with_report().await) });
    spawn(async { drop(Box::pin(P.retry(|| boxed()).when(|_| true).into_future()).await) });
    spawn(async { drop(Remote.get("a").await) });
    spawn(async { drop(P.retry(|| cow()).notify(|_, _| {}).record_errors().when(|_| true).until(|value| *value > 3).await) });
    spawn(async { drop(H.retry(|| cow()).notify(|_, _| {}).when(|_| true).until(|value| *value > 3).with_report().await) });
    spawn(async { drop(P.retry(|| text()).when(|_| true).call_log(&mut redial::CallLog::new()).await) });
    spawn(async { drop(tokio::time::timeout(ms(3), P.retry(|| text()).when(|_| true)).await) });
    spawn(async {
        tokio::select! {
            result = P.retry(|| text()).when(|_| true) => drop(result),
            result = H.retry(|| boxed()).when(|_| true) => drop(result),
        }
    });
    // `join!` keeps the output of a future in a field, so that such a call is wrapped.
    spawn(async {
        drop(tokio::join!(
            async { P.retry(|| text()).when(|_| true).await },
            async { H.retry(|| boxed()).when(|_| true).await },
        ));
    });
    spawn(async { drop(P.retry_on(&mut Remote, async |remote| remote.read("a").await).when(|_| true).await) });
    spawn(async { drop(P.retry_on(&mut Remote, async |_| text().await).when(|error| error.len() > 3).await) });
    spawn(async { drop(P.retry_on(&mut Remote, async |_| cow().await).until(|value| *value > 3).notify(|_, _| {}).when(|_| true).await) });
    spawn(async { drop(P.retry_on(&mut Remote, async |_| text().await).classify(|_: &Result<u32, _>| Some(redial::Directive::Fail)).await) });
    spawn(async { drop(P.retry_with_context(Remote, |remote, _| async move { (remote, cow().await) }).when(|_| true).await) });
    handler(|_| async { P.retry(|| boxed()).when(|_| true).await.unwrap_or(0) });
}
