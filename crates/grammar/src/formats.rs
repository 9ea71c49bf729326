//! Formats of strings as regular expressions.

const DATE: &str = "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)\
                    |02-(?:0[1-9]|1[0-9]|2[0-8]))\
                    |(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)";

const TIME: &str = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";

/// A number of an IPv4 address.
const BYTE: &str = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

/// A part of a host's name.
const LABEL: &str = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";

/// An expression for a format that `llguidance` is less exact about: it allows the 29th of February in every year and a 60th
/// second in every minute. Here none has one.
pub(crate) fn exact(name: &str) -> Option<String> {
    match name {
        "date" => Some(format!("^{DATE}$")),
        "date-time" => Some(format!("^{DATE}T{TIME}$")),
        "time" => Some(format!("^{TIME}$")),
        _ => None,
    }
}

/// An expression for a format that [`exact`] has none for, for the whole text. Rare forms are left out: quoted names in
/// addresses of mail, and hosts of an URI that are numbers of IPv6.
pub(crate) fn expression(name: &str) -> Option<String> {
    Some(match name {
        "duration" => {
            let time = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
            let date = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)";
            format!("P(?:{date}(?:{time})?|{time}|[0-9]+W)")
        }
        "email" => {
            let name = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+";
            format!(r"{name}(?:\.{name})*@{LABEL}(?:\.{LABEL})*")
        }
        "hostname" => format!(r"{LABEL}(?:\.{LABEL})*"),
        "ipv4" => format!(r"(?:{BYTE}\.){{3}}{BYTE}"),
        "ipv6" => {
            let group = "[0-9a-fA-F]{1,4}";
            // A `::` stands for at least one group.
            let shortened: Vec<String> =
                (1..=6).map(|before| format!("(?:{group}:){{1,{before}}}(?::{group}){{1,{}}}", 7 - before)).collect();
            let (shortened, ends) = (shortened.join("|"), format!("(?:{group}:){{1,7}}:|:(?::{group}){{1,7}}|::"));
            format!("(?:(?:{group}:){{7}}{group}|{shortened}|{ends})")
        }
        "uri" => {
            let of = |more: &str| format!("(?:[a-zA-Z0-9._~!$&'()*+,;={more}-]|%[0-9a-fA-F]{{2}})");
            let (name, part, query) = (of(""), of(":@"), of(":@/?"));
            let (user, path) = (of(":"), format!("(?:/{part}*)*"));
            let place = format!("(?://(?:{user}*@)?{name}*(?::[0-9]*)?{path}|/?(?:{part}+{path})?)");
            format!(r"[a-zA-Z][a-zA-Z0-9+.-]*:{place}(?:\?{query}*)?(?:\#{query}*)?")
        }
        "uuid" => "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}".to_owned(),
        _ => return None,
    })
}
