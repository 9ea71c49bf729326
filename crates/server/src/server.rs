//! From an address to the end of the last connection.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use kapitsa::Llm;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::app::App;
use crate::{ServedModel, ServerOptions, connection, router};

/// Threads that serve sockets. They wait nearly all the time: the cores are for the engine.
const THREADS: usize = 2;

/// How much of the time for a shutdown running replies get; the rest is for telling clients that they were cut.
const GRACE: f64 = 0.8;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another program listens there.
    #[error("cannot listen on {address}: the port is in use; stop the other program or choose another with --port")]
    PortInUse {
        /// Host and port.
        address: String,
    },
    /// The system refuses the address.
    #[error("cannot listen on {address}: {source}; --host and --port say where")]
    Listen {
        /// Host and port.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// A prefix that cannot be part of a path.
    #[error("path prefix `{prefix}`, expected `/` and letters, digits and -._~/, such as /llm")]
    Prefix {
        /// What was asked for.
        prefix: String,
    },
    /// A text that is no origin.
    #[error("origin `{origin}` for CORS, expected a scheme and a host, such as https://example.com, or *")]
    Origin {
        /// What was asked for.
        origin: String,
    },
    /// No threads, or the listener broke.
    #[error("the server cannot run: {0}")]
    Run(#[from] io::Error),
}

/// An address that is taken, so that a model is not loaded for nothing.
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    options: ServerOptions,
}

/// A model behind an address.
pub struct Server {
    listener: TcpListener,
    app: Arc<App>,
    router: Router,
    stop: Stopper,
}

/// Tells a server to stop.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<watch::Sender<bool>>);

/// Takes the address that the options name.
///
/// # Errors
/// If it cannot be had, or if an option cannot be what it is.
pub fn bind(options: ServerOptions) -> Result<Bound, ServeError> {
    let options = ServerOptions { path_prefix: prefix(&options.path_prefix)?, ..options };
    let shown = || match options.host.contains(':') {
        true => format!("[{}]:{}", options.host, options.port),
        false => format!("{}:{}", options.host, options.port),
    };
    let host = options.host.trim_start_matches('[').trim_end_matches(']');
    let listen = || -> io::Result<(TcpListener, SocketAddr)> {
        let listener = TcpListener::bind(&*(host, options.port).to_socket_addrs()?.collect::<Vec<_>>())?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    match listen() {
        Ok((listener, address)) => Ok(Bound { listener, address, options }),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(ServeError::PortInUse { address: shown() }),
        Err(source) => Err(ServeError::Listen { address: shown(), source }),
    }
}

/// A prefix without a slash at its end; empty for none.
fn prefix(text: &str) -> Result<String, ServeError> {
    let prefix = text.trim_end_matches('/');
    let is_path = prefix.starts_with('/')
        && !prefix.contains("//")
        && prefix.chars().all(|c| c.is_ascii_alphanumeric() || "-._~/".contains(c));
    match prefix.is_empty() || is_path {
        true => Ok(prefix.into()),
        false => Err(ServeError::Prefix { prefix: text.into() }),
    }
}

impl Bound {
    /// Where it listens, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether programs of other machines can reach it.
    pub fn is_open_to_others(&self) -> bool {
        !self.address.ip().is_loopback()
    }

    /// Puts a model there.
    ///
    /// # Errors
    /// If an option cannot be what it is.
    pub fn serve(self, llm: Arc<Llm>, model: ServedModel) -> Result<Server, ServeError> {
        let Bound { listener, options, .. } = self;
        let app = Arc::new(App::new(llm, model, options));
        let router = router::router(app.clone())?;
        Ok(Server { listener, app, router, stop: Stopper(Arc::new(watch::Sender::new(false))) })
    }
}

impl Stopper {
    /// Has the server accept no more. Running replies get a few seconds, then they are cut.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Server {
    /// What tells it to stop, from any thread.
    pub fn stopper(&self) -> Stopper {
        self.stop.clone()
    }

    /// Answers until it is told to stop, and until all has ended or the time for that is over.
    ///
    /// # Errors
    /// If the system gives no threads.
    pub fn run(self) -> Result<(), ServeError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("kapitsa-http")
            .enable_all()
            .build()?;
        let result = runtime.block_on(self.accept());
        // Somebody's long prompt may still be turned into tokens.
        runtime.shutdown_background();
        result
    }

    async fn accept(self) -> Result<(), ServeError> {
        let Server { listener, app, router, stop } = self;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let limits = app.options.limits;
        let places = Arc::new(Semaphore::new(limits.connections));
        let mut stopped = stop.0.subscribe();
        let mut connections = JoinSet::new();
        let accept = async || {
            // The semaphore is never closed.
            let place = places.clone().acquire_owned().await.ok();
            (place, listener.accept().await)
        };
        loop {
            tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => break,
                Some(_) = connections.join_next() => {}
                (place, accepted) = accept() => match accepted {
                    Ok((socket, _)) => {
                        let connection = connection::serve(app.clone(), router.clone(), socket, stop.0.subscribe());
                        connections.spawn(async move {
                            connection.await;
                            drop(place);
                        });
                    }
                    // Out of files, mostly: some will be closed.
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
        drop(listener);
        let grace = limits.shutdown_time.mul_f64(GRACE);
        if timeout(grace, all(&mut connections)).await.is_err() {
            app.llm.stop();
            if timeout(limits.shutdown_time - grace, all(&mut connections)).await.is_err() {
                connections.shutdown().await;
            }
        }
        Ok(())
    }
}

async fn all(connections: &mut JoinSet<()>) {
    while connections.join_next().await.is_some() {}
}
