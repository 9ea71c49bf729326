//! `/metrics`: what engine and server count, in the text form of Prometheus.

use std::fmt;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{MatchedPath, State};
use axum::http::{Request, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use kapitsa::{Stats, StepTimes};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::app::App;
use crate::error::ApiError;

/// What the server counts itself.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    responses: Family<Answer, Counter>,
}

/// What is told of an answer: few values each, whatever clients send.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    route: String,
    status: u16,
}

/// Counts an answer once its status is known.
pub(crate) async fn count(State(app): State<Arc<App>>, request: Request<Body>, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let response = next.run(request).await;
    app.metrics.responses.get_or_create(&Answer { route, status: response.status().as_u16() }).inc();
    response
}

/// What engine and server have counted so far.
#[utoipa::path(get, path = "/metrics", operation_id = "metrics", responses(
    (status = 200, description = "the text form of Prometheus", body = String, content_type = "application/openmetrics-text"),
))]
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let mut registry = Registry::with_prefix("kapitsa");
    registry.register("http_responses", "Answers by route and status", app.metrics.responses.clone());
    registry.register_collector(Box::new(EngineStats(app.llm.stats())));
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|error| ApiError::internal(error.to_string()))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

#[derive(Debug)]
struct EngineStats(Stats);

impl Collector for EngineStats {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Stats { finished, cancelled, failed, refused, .. } = self.0;
        let outcomes = [("finished", finished), ("cancelled", cancelled), ("failed", failed), ("refused", refused)];
        counters(&mut encoder, "requests", "Requests by what became of them", "outcome", &outcomes)?;
        let Stats { tokens_read, tokens_reused, tokens_written, .. } = self.0;
        let tokens = [("read", tokens_read), ("reused", tokens_reused), ("written", tokens_written)];
        counters(&mut encoder, "tokens", "Tokens of prompts read and reused, and of replies written", "kind", &tokens)?;
        let gauges = [
            ("slots", "Replies that can be under way at a time", self.0.slots),
            ("slots_busy", "Replies under way", self.0.slots_busy),
            ("queue_limit", "Requests that can wait for a slot", self.0.queue_limit),
            ("queue", "Requests that wait for a slot", self.0.queue),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value as i64);
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        let times = &self.0.step_times;
        let bounds = StepTimes::BOUNDS.iter().copied().chain([f64::MAX]);
        let classes: Vec<(f64, u64)> = bounds.zip(times.counts().iter().copied()).collect();
        let mut histogram =
            encoder.encode_descriptor("step_seconds", "Times of the engine's steps", None, MetricType::Histogram)?;
        histogram.encode_histogram::<NoLabelSet>(times.sum().as_secs_f64(), times.steps(), &classes, None)
    }
}

/// A counter with a value for each of some labels.
fn counters(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    values: &[(&str, u64)],
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    values
        .iter()
        .try_for_each(|&(value, count)| ConstCounter::new(count).encode(family.encode_family(&[(label, value)])?))
}
