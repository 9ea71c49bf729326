//! Reads the configuration file: TOML, a key for each setting.

use std::ffi::OsString;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::table::{Kind, SETTINGS};
use super::{Value, nearest, wrong};
use crate::env;

/// The settings of a file, and a line for each thing in it that is none.
pub(super) fn parse(path: &Path, text: &str) -> (Vec<Value>, Vec<String>) {
    let line = |start: usize| text.as_bytes()[..start].iter().filter(|&&byte| byte == b'\n').count() + 1;
    let place = |start| format!("{}:{}:", path.display(), line(start));
    let table = match DeTable::parse(text) {
        Ok(table) => table.into_inner(),
        Err(error) => {
            let start = error.span().map_or(0, |span| span.start.min(text.len()));
            return (vec![], vec![format!("{} {}", place(start), error.message().replace('\n', ", "))]);
        }
    };
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let (mut values, mut problems) = (vec![], vec![]);
    for (key, value) in entries {
        let place = place(key.span().start);
        let key: &str = key.get_ref();
        let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
            let nearest = nearest(key, SETTINGS.iter().map(|setting| setting.key));
            problems.push(format!("{place} unknown key `{key}`{nearest}"));
            continue;
        };
        let place = format!("{place} `{key}`");
        match texts(setting.kind, value.get_ref()) {
            Some(texts) if key == "home" && !Path::new(&texts[0]).is_absolute() => {
                let found = format!("`{}`", texts[0].display());
                problems.push(wrong(setting, &place, &found, "an absolute path or one that begins with ~/"));
            }
            Some(texts) => values.push(Value { setting, texts, place }),
            None => {
                let found = format!("of type {}", value.get_ref().type_str());
                problems.push(wrong(setting, &place, &found, setting.kind.expected()));
            }
        }
    }
    (values, problems)
}

/// The values as an option would have them; None if they are of another kind.
fn texts(kind: Kind, value: &DeValue<'_>) -> Option<Vec<OsString>> {
    let text = match (kind, value) {
        (Kind::Text, DeValue::String(text)) => text.to_string().into(),
        (Kind::Path, DeValue::String(text)) => match (text.strip_prefix("~/"), env::user_folder()) {
            (Some(rest), Some(folder)) => folder.join(rest).into(),
            _ => text.to_string().into(),
        },
        (Kind::Whole | Kind::Number, DeValue::Integer(number)) => {
            i128::from_str_radix(number.as_str(), number.radix()).ok()?.to_string().into()
        }
        (Kind::Number, DeValue::Float(number)) => number.as_str().into(),
        (Kind::Switch, DeValue::Boolean(on)) => on.to_string().into(),
        (Kind::Texts, DeValue::Array(values)) => {
            return values.iter().map(|value| Some(value.get_ref().as_str()?.into())).collect();
        }
        _ => return None,
    };
    Some(vec![text])
}
