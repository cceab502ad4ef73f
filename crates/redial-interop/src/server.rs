//! The server side of the cases: a tonic server behind Redial's server layers.
//!
//! The layers are those that the guide recommends, in its order; the handlers do not depend on
//! them.

use std::net::SocketAddr;
use std::time::Duration;

use prost::Message;
use redial_grpc_server::{DeadlineLayer, HoldLayer, InboundAttemptLayer};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::BoxStream;
use tonic::metadata::{BinaryMetadataValue, MetadataMap};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::BoxError;
use crate::orca::open_rca_service_server::{OpenRcaService, OpenRcaServiceServer};
use crate::orca::{OrcaLoadReport, OrcaLoadReportRequest};
use crate::testing::test_service_server::{TestService, TestServiceServer};
use crate::testing::{
    EchoStatus, Empty, Payload, PayloadType, SimpleRequest, SimpleResponse,
    StreamingInputCallRequest, StreamingInputCallResponse, StreamingOutputCallRequest,
    StreamingOutputCallResponse, TestOrcaReport,
};
use crate::trailers::{Trailers, TrailersLayer};

pub(crate) const ECHO_INITIAL: &str = "x-grpc-test-echo-initial";
pub(crate) const ECHO_TRAILING: &str = "x-grpc-test-echo-trailing-bin";
pub(crate) const LOAD_REPORT: &str = "endpoint-load-metrics-bin";

/// The largest generated payload; the cases request a tenth of it.
pub const PAYLOAD_MAX: usize = 4 << 20;
/// The shortest allowed interval between two load reports.
pub const REPORT_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct TestServer {
    address: SocketAddr,
    task: AbortHandle,
}

impl TestServer {
    /// Serves on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// If there is no free port.
    pub fn start() -> Result<Self, BoxError> {
        let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into())?.with_nodelay(Some(true));
        let address = incoming.local_addr()?;
        let load = watch::Sender::new(OrcaLoadReport::default());
        let server = Server::builder()
            .layer(DeadlineLayer::new())
            .layer(InboundAttemptLayer::new())
            .layer(HoldLayer::new())
            .layer(TrailersLayer)
            .add_service(OpenRcaServiceServer::new(Reporter { load: load.clone() }))
            .add_service(TestServiceServer::new(Handler { id: address.to_string(), load }));
        let task = tokio::spawn(server.serve_with_incoming(incoming)).abort_handle();
        Ok(Self { address, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Handler {
    id: String,
    load: watch::Sender<OrcaLoadReport>,
}

#[tonic::async_trait]
impl TestService for Handler {
    async fn empty_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Ok(Response::new(Empty {}))
    }

    async fn unary_call(
        &self,
        request: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        let trailers = Trailers::of(&request);
        let initial = echo(request.metadata(), &trailers);
        let request = request.into_inner();
        requested_status(request.response_status.as_ref())?;
        if let Some(report) = &request.orca_per_query_report {
            let report = BinaryMetadataValue::from_bytes(&report_of(report).encode_to_vec());
            let report = http::HeaderValue::from_bytes(report.as_encoded_bytes());
            trailers.insert(LOAD_REPORT, report.map_err(|_| Status::internal("no header value"))?);
        }
        let server_id = if request.fill_server_id { self.id.clone() } else { String::new() };
        let payload = Some(payload(request.response_type(), request.response_size)?);
        let mut response = Response::new(SimpleResponse { payload, server_id });
        *response.metadata_mut() = initial;
        Ok(response)
    }

    type StreamingOutputCallStream = BoxStream<StreamingOutputCallResponse>;

    async fn streaming_output_call(
        &self,
        request: Request<StreamingOutputCallRequest>,
    ) -> Result<Response<Self::StreamingOutputCallStream>, Status> {
        let (out, stream) = mpsc::channel(1);
        tokio::spawn(async move {
            let ended = match answer(&request.into_inner(), &out).await {
                Err(status) => out.send(Err(status)).await,
                Ok(()) => Ok(()),
            };
            // The client has disconnected.
            drop(ended);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn streaming_input_call(
        &self,
        request: Request<Streaming<StreamingInputCallRequest>>,
    ) -> Result<Response<StreamingInputCallResponse>, Status> {
        let mut inbound = request.into_inner();
        let mut size = 0;
        while let Some(request) = inbound.message().await? {
            size += request.payload.map_or(0, |payload| payload.body.len());
        }
        let aggregated_payload_size = i32::try_from(size)
            .map_err(|_| Status::out_of_range("more bytes than the answer can say"))?;
        Ok(Response::new(StreamingInputCallResponse { aggregated_payload_size }))
    }

    type FullDuplexCallStream = BoxStream<StreamingOutputCallResponse>;

    async fn full_duplex_call(
        &self,
        request: Request<Streaming<StreamingOutputCallRequest>>,
    ) -> Result<Response<Self::FullDuplexCallStream>, Status> {
        let initial = echo(request.metadata(), &Trailers::of(&request));
        let mut inbound = request.into_inner();
        let load = self.load.clone();
        let (out, stream) = mpsc::channel(1);
        tokio::spawn(async move {
            let conversation = async {
                while let Some(request) = inbound.message().await? {
                    requested_status(request.response_status.as_ref())?;
                    if let Some(report) = &request.orca_oob_report {
                        load.send_replace(report_of(report));
                    }
                    answer(&request, &out).await?;
                }
                Ok(())
            };
            if let Err(status) = conversation.await {
                // The client has disconnected.
                let _ = out.send(Err(status)).await;
            }
        });
        let mut response: Response<BoxStream<_>> =
            Response::new(Box::pin(ReceiverStream::new(stream)));
        *response.metadata_mut() = initial;
        Ok(response)
    }
}

type Answers = mpsc::Sender<Result<StreamingOutputCallResponse, Status>>;

async fn answer(request: &StreamingOutputCallRequest, out: &Answers) -> Result<(), Status> {
    for requested in &request.response_parameters {
        let interval_us = u64::try_from(requested.interval_us).unwrap_or(0);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_micros(interval_us)) => {}
            () = out.closed() => {}
        }
        let payload = Some(payload(request.response_type(), requested.size)?);
        out.send(Ok(StreamingOutputCallResponse { payload }))
            .await
            .map_err(|_| Status::cancelled("the client has left"))?;
    }
    Ok(())
}

fn payload(r#type: PayloadType, size: i32) -> Result<Payload, Status> {
    match usize::try_from(size) {
        Ok(size) if size <= PAYLOAD_MAX => {
            Ok(Payload { r#type: r#type.into(), body: vec![0; size].into() })
        }
        _ => Err(Status::invalid_argument(format!(
            "expected a size from 0 to {PAYLOAD_MAX}, found {size}"
        ))),
    }
}

fn requested_status(status: Option<&EchoStatus>) -> Result<(), Status> {
    match status {
        Some(status) if status.code != 0 => {
            Err(Status::new(Code::from_i32(status.code), &status.message))
        }
        _ => Ok(()),
    }
}

/// Copies the echo metadata to the trailers, and returns the part for the headers.
fn echo(metadata: &MetadataMap, trailers: &Trailers) -> MetadataMap {
    let mut initial = MetadataMap::new();
    if let Some(value) = metadata.get(ECHO_INITIAL) {
        initial.insert(ECHO_INITIAL, value.clone());
    }
    if let Some(value) = metadata.as_ref().get(ECHO_TRAILING) {
        trailers.insert(ECHO_TRAILING, value.clone());
    }
    initial
}

pub(crate) fn report_of(requested: &TestOrcaReport) -> OrcaLoadReport {
    OrcaLoadReport {
        cpu_utilization: requested.cpu_utilization,
        mem_utilization: requested.memory_utilization,
        request_cost: requested.request_cost.clone(),
        utilization: requested.utilization.clone(),
    }
}

struct Reporter {
    load: watch::Sender<OrcaLoadReport>,
}

#[tonic::async_trait]
impl OpenRcaService for Reporter {
    type StreamCoreMetricsStream = BoxStream<OrcaLoadReport>;

    async fn stream_core_metrics(
        &self,
        request: Request<OrcaLoadReportRequest>,
    ) -> Result<Response<Self::StreamCoreMetricsStream>, Status> {
        let asked = request.into_inner().report_interval.unwrap_or_default();
        let seconds = u64::try_from(asked.seconds).unwrap_or(0);
        let nanos = u32::try_from(asked.nanos).unwrap_or(0);
        let interval =
            Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos.into()));
        let interval = interval.max(REPORT_INTERVAL_MIN);
        let load = self.load.subscribe();
        let (out, stream) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                let report = load.borrow().clone();
                if out.send(Ok(report)).await.is_err() {
                    return;
                }
                tokio::select! {
                    () = tokio::time::sleep(interval) => {}
                    () = out.closed() => return,
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}
