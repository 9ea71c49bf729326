//! Who may come in: the `Host` header while no key is set, the key once one is.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use crate::ServerOptions;
use crate::app::App;
use crate::error::ApiError;

/// The address of ours that a connection came in on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalAddress(pub(crate) SocketAddr);

/// Routes that say nothing about anybody, for probes of orchestrators: they need no key.
const OPEN: [&str; 2] = ["/", "/health"];

pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request<Body>, next: Next) -> Response {
    let options = &app.options;
    let result = match &options.api_key {
        None => check_host(options, request.headers(), request.uri(), request.extensions().get::<LocalAddress>()),
        Some(_) if is_open(options, request.uri().path()) => Ok(()),
        Some(key) => check_key(key, request.headers()),
    };
    match result {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn is_open(options: &ServerOptions, path: &str) -> bool {
    let path = path.strip_prefix(options.path_prefix.as_str()).unwrap_or(path);
    path.is_empty() || OPEN.contains(&path)
}

/// Compares in a time that does not depend on where the keys differ.
fn check_key(key: &str, headers: &HeaderMap) -> Result<(), ApiError> {
    let bearer = headers.get(header::AUTHORIZATION).map(|value| {
        let value = value.as_bytes();
        let is_bearer = value.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "));
        if is_bearer { &value[7..] } else { value }
    });
    let sent = [bearer, headers.get("x-api-key").map(|value| value.as_bytes())];
    let mut sent = sent.into_iter().flatten().peekable();
    if sent.peek().is_none() {
        return Err(ApiError::unauthorized("no API key; send it as `Authorization: Bearer KEY` or `x-api-key: KEY`"));
    }
    match sent.any(|sent| bool::from(sent.trim_ascii().ct_eq(key.as_bytes()))) {
        true => Ok(()),
        false => Err(ApiError::unauthorized("the API key is wrong; it is the one that the server was started with")),
    }
}

/// A page of another site may have a name of its own lead to this machine: such a request says the name.
fn check_host(
    options: &ServerOptions,
    headers: &HeaderMap,
    uri: &Uri,
    local: Option<&LocalAddress>,
) -> Result<(), ApiError> {
    let header = headers.get(header::HOST).map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
    let named = [header, uri.authority().map(ToString::to_string)];
    for host in named.into_iter().flatten() {
        if !is_ours(options, &host, local) {
            let shown: String = host.chars().take(100).collect();
            return Err(ApiError::forbidden(format!(
                "the host `{shown}` is not this server's; allow it with --allowed-host, or set an API key"
            )));
        }
    }
    Ok(())
}

fn is_ours(options: &ServerOptions, host: &str, local: Option<&LocalAddress>) -> bool {
    let name = without_port(host).trim_end_matches('.');
    let mut named =
        [options.host.as_str(), "localhost"].into_iter().chain(options.allowed_hosts.iter().map(String::as_str));
    if named.any(|known| known.eq_ignore_ascii_case(name) || known.eq_ignore_ascii_case(host)) {
        return true;
    }
    match name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(address) => address.is_loopback() || local.is_some_and(|local| local.0.ip().to_canonical() == address),
        Err(_) => name.to_ascii_lowercase().ends_with(".localhost"),
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_this_machine_are_ours_and_others_are_not() {
        let allowed_hosts = vec!["box.lan".to_owned()];
        let options = ServerOptions { host: "studio".into(), allowed_hosts, ..ServerOptions::default() };
        let local = LocalAddress("192.168.1.5:8000".parse().unwrap());
        let ours = |host| is_ours(&options, host, Some(&local));
        for host in [
            "localhost",
            "LOCALHOST:8000",
            "localhost.:80",
            "a.localhost:1",
            "127.0.0.1:8000",
            "127.8.8.8",
            "[::1]:8000",
            "[::1]",
            "studio:9",
            "box.lan:8000",
            "192.168.1.5:8000",
        ] {
            assert!(ours(host), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example:8000", "192.168.1.6:8000", "8.8.8.8", "", "::", "[::2]:80", "a:b"]
        {
            assert!(!ours(host), "{host}");
        }
    }

    #[test]
    fn a_key_is_taken_in_both_headers_and_no_other() {
        let check = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            pairs.iter().for_each(|(name, value)| drop(headers.insert(*name, value.parse().unwrap())));
            check_key("K1", &headers).is_ok()
        };
        for good in [[("authorization", "Bearer K1")], [("authorization", "bearer K1")], [("x-api-key", "K1")]] {
            assert!(check(&good), "{good:?}");
        }
        assert!(check(&[("authorization", "Bearer other"), ("x-api-key", "K1")]));
        for bad in
            [("authorization", "Bearer K"), ("authorization", "Basic K1"), ("x-api-key", "K11"), ("x-api-key", "")]
        {
            assert!(!check(&[bad]), "{bad:?}");
        }
        assert!(!check(&[]));
    }
}
