//! Cases with many calls, and cases about load reports (ORCA).

use std::collections::HashMap;
use std::time::Duration;

use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::{ask, expect, expect_size, plain, zeros};
use crate::BoxError;
use crate::caller::{Caller, Connection};
use crate::orca::{Interval, OrcaLoadReport, OrcaLoadReportRequest};
use crate::server::{LOAD_REPORT, report_of};
use crate::testing::{SimpleRequest, StreamingOutputCallRequest, TestOrcaReport};

const CALLS: usize = 100;
const SOAK_CALLS: usize = 50;
/// The shortest report interval of grpc-go's server.
const REPORT_EVERY_SECONDS: i64 = 1;
/// How long to wait for a report: less than the limit of a case, so that the error shows the last
/// report.
const REPORT_MAX: Duration = Duration::from_secs(45);

pub(super) async fn pick_first_unary(connection: &Connection) -> Result<(), BoxError> {
    let mut first = None;
    for _ in 0..CALLS {
        let answer = connection.client().unary_call(server_id_request()).await?.into_inner();
        expect("whether the server sent its id", answer.server_id.is_empty(), false)?;
        let first = first.get_or_insert_with(|| answer.server_id.clone());
        expect("the server", &answer.server_id, &*first)?;
    }
    Ok(())
}

/// A request for the server's identity.
pub(crate) fn server_id_request() -> SimpleRequest {
    SimpleRequest {
        response_size: 1,
        payload: Some(zeros(1)),
        fill_server_id: true,
        ..SimpleRequest::default()
    }
}

pub(super) async fn rpc_soak(connection: &Connection) -> Result<(), BoxError> {
    for _ in 0..SOAK_CALLS {
        plain::large_unary(connection).await?;
    }
    Ok(())
}

pub(super) async fn channel_soak(caller: &Caller) -> Result<(), BoxError> {
    for _ in 0..SOAK_CALLS {
        plain::large_unary(&caller.connect()?).await?;
    }
    Ok(())
}

pub(super) async fn orca_per_rpc(connection: &Connection) -> Result<(), BoxError> {
    let requested = TestOrcaReport {
        cpu_utilization: 0.821,
        memory_utilization: 0.5847,
        request_cost: HashMap::from([("cost".into(), 3456.32)]),
        utilization: HashMap::from([("util".into(), 0.30499)]),
    };
    let request = SimpleRequest {
        orca_per_query_report: Some(requested.clone()),
        ..SimpleRequest::default()
    };
    let answer = connection.client().unary_call(request).await?;
    let report = answer.metadata().get_bin(LOAD_REPORT).ok_or("the trailers have no report")?;
    expect("the report", OrcaLoadReport::decode(report.to_bytes()?)?, report_of(&requested))
}

pub(super) async fn orca_oob(connection: &Connection) -> Result<(), BoxError> {
    let (out, messages) = mpsc::channel(1);
    let first = load(0.821, 0.5847, 0.30499);
    out.send(report_request(&first)).await?;
    let call = connection.client().full_duplex_call(ReceiverStream::new(messages)).await?;
    let mut answers = call.into_inner();
    let answer = answers.message().await?.ok_or("the stream ended too early")?;
    expect_size(answer.payload, 1)?;
    let interval = Some(Interval { seconds: REPORT_EVERY_SECONDS, nanos: 0 });
    let request = OrcaLoadReportRequest { report_interval: interval };
    let mut reports = connection.load().stream_core_metrics(request).await?.into_inner();
    reported(&mut reports, &first).await?;

    let second = load(0.29309, 0.2, 0.2039);
    out.send(report_request(&second)).await?;
    let answer = answers.message().await?.ok_or("the stream ended too early")?;
    expect_size(answer.payload, 1)?;
    reported(&mut reports, &second).await?;
    drop((out, reports));
    expect("what follows the last message", answers.message().await?, None)
}

fn load(cpu_utilization: f64, memory_utilization: f64, utilization: f64) -> TestOrcaReport {
    let utilization = HashMap::from([("util".into(), utilization)]);
    TestOrcaReport { cpu_utilization, memory_utilization, utilization, ..TestOrcaReport::default() }
}

fn report_request(report: &TestOrcaReport) -> StreamingOutputCallRequest {
    StreamingOutputCallRequest { orca_oob_report: Some(report.clone()), ..ask(0, 1) }
}

/// Waits for the expected report; earlier reports are ignored.
async fn reported(
    reports: &mut Streaming<OrcaLoadReport>,
    requested: &TestOrcaReport,
) -> Result<(), BoxError> {
    let requested = report_of(requested);
    let mut last = None;
    let found = tokio::time::timeout(REPORT_MAX, async {
        while last.as_ref() != Some(&requested) {
            last = Some(reports.message().await?.ok_or("the reports ended")?);
        }
        Ok::<_, BoxError>(())
    });
    match found.await {
        Ok(found) => found,
        Err(_) => expect("the report", last, Some(requested)),
    }
}
