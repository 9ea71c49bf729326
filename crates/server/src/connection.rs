//! One connection: HTTP/1.1 with time-outs on both sides.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_io_timeout::TimeoutStream;
use tower::Service;

use crate::app::App;
use crate::guard::LocalAddress;

/// Answers the requests of a connection until it closes, or until its current one is answered once `stop` says so.
pub(crate) async fn serve(app: Arc<App>, router: Router, socket: TcpStream, mut stop: watch::Receiver<bool>) {
    // Each event of a stream goes out by itself.
    let _ = socket.set_nodelay(true);
    let local = socket.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
    let limits = &app.options.limits;
    let mut stream = TimeoutStream::new(socket);
    // A client that takes nothing of an answer would hold its slot for ever.
    stream.set_write_timeout(Some(limits.write_pause));
    let answer = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(LocalAddress(local));
        router.clone().call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .serve_connection(TokioIo::new(Box::pin(stream)), answer);
    let mut connection = std::pin::pin!(connection);
    let stopped = async { drop(stop.wait_for(|stop| *stop).await) };
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stopped => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended");
    }
}
