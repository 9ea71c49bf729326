//! `kapitsa serve`: a model over HTTP.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kapitsa::{Llm, Located, OpenOptions};
use kapitsa_server::{Bound, ServeError, ServedModel, ServerOptions};
use serde_json::json;

use crate::args::ServeArgs;
use crate::output::{Failure, note, print};
use crate::{interrupt, models, progress, reply};

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        Failure::Error(error.to_string())
    }
}

pub(crate) fn run(args: ServeArgs) -> Result<(), Failure> {
    // Before the model: a port that is in use should not take a minute to say so.
    let bound = kapitsa_server::bind(options(&args)?)?;
    let hub = models::hub()?;
    let located = kapitsa::locate_model(&hub, args.model.as_deref())?;
    let path = match &located {
        Located::Path(path) => path.clone(),
        Located::Hub(wanted) => progress::pull(&hub, wanted)?,
    };
    let name = match &located {
        Located::Path(_) => None,
        Located::Hub(wanted) => Some(wanted.name.as_str()),
    };
    let model = served(&path, name, args.model.as_deref());
    let defaults = OpenOptions::default();
    let slots = args.slots.map_or(defaults.slots, usize::from);
    let llm = Arc::new(progress::open(&path, &OpenOptions { slots, ..args.device.options() })?);
    announce(&args, &bound, &llm, &model, slots)?;
    let server = bound.serve(llm, model)?;
    let stopper = server.stopper();
    let _graceful = interrupt::Graceful::new();
    std::thread::spawn(move || {
        while !interrupt::requested().load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(50));
        }
        note("stopping; running replies get a few seconds (Ctrl-C again ends at once)");
        stopper.stop();
    });
    Ok(server.run()?)
}

fn options(args: &ServeArgs) -> Result<ServerOptions, Failure> {
    let defaults = ServerOptions::default();
    if args.api_key.as_ref().is_some_and(|key| key.trim().is_empty()) {
        return Err(Failure::Error("the API key is empty; leave --api-key out to need none".into()));
    }
    Ok(ServerOptions {
        host: args.host.clone().unwrap_or(defaults.host),
        port: args.port.unwrap_or(defaults.port),
        api_key: args.api_key.as_ref().map(|key| key.trim().to_owned()),
        strict_models: args.strict_models,
        path_prefix: args.path_prefix.clone().unwrap_or_default(),
        cors_origins: args.cors_origin.clone(),
        allowed_hosts: args.allowed_host.clone(),
        thinking_budget: args.thinking_budget,
        now: Some(reply::now),
        limits: defaults.limits,
    })
}

/// What the model is called: its catalog name, or else its file without the ending or its folder. Whatever was typed, its
/// path and the file's name are names for it, too.
fn served(path: &Path, name: Option<&str>, typed: Option<&str>) -> ServedModel {
    let text = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
    let stem = if path.is_dir() { text(path.file_name()) } else { text(path.file_stem()) };
    let id = name.map(str::to_owned).or(stem.clone()).unwrap_or_else(|| "model".into());
    let names = [stem, text(path.file_name()), Some(path.display().to_string()), typed.map(str::to_owned)];
    let mut aliases: Vec<String> = names.into_iter().flatten().filter(|alias| *alias != id).collect();
    aliases.dedup();
    ServedModel { id, aliases }
}

fn announce(args: &ServeArgs, bound: &Bound, llm: &Llm, model: &ServedModel, slots: usize) -> Result<(), Failure> {
    let address = bound.address();
    // Nobody can call the address that means all addresses.
    let here = match address.ip().is_unspecified() {
        true => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), address.port()),
        false => address,
    };
    let prefix = args.path_prefix.as_deref().unwrap_or_default().trim_end_matches('/');
    let url = format!("http://{here}{prefix}/v1");
    if bound.is_open_to_others() && args.api_key.is_none() {
        note(&format!("warning: {address} can be reached from other machines, and no key is needed; set --api-key"));
    }
    let key = if args.api_key.is_some() { "OPENAI_API_KEY=<the key>" } else { "OPENAI_API_KEY=any" };
    let (id, context) = (&model.id, llm.context());
    note(&format!(
        "serving {id} at {url} ({context} tokens of context, {slots} slots); in clients set OPENAI_BASE_URL={url} {key}"
    ));
    if args.json {
        let line = json!({
            "url": url, "address": address.to_string(), "model": id, "context": context, "slots": slots,
            "needs_key": args.api_key.is_some(),
        });
        print(&format!("{line}\n"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_called_what_people_call_it() {
        let of = |path: &str, name, typed| served(Path::new(path), name, typed);
        let file = of("/m/Tiny-Q4.gguf", None, Some("/m/Tiny-Q4.gguf"));
        assert_eq!(
            (file.id.as_str(), &file.aliases[..]),
            ("Tiny-Q4", &["Tiny-Q4.gguf".into(), "/m/Tiny-Q4.gguf".into()][..])
        );
        let known = of("/m/SmolLM2.gguf", Some("smollm2-135m"), None);
        assert_eq!(known.id, "smollm2-135m");
        assert!(known.aliases.contains(&"SmolLM2".to_string()));
    }
}
