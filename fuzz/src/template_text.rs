//! Changes to chat templates and messages.

use kapitsa_testkit::random::Rng;

use crate::{json, parts};

/// Pieces of Jinja.
const SNIPPETS: &[&str] = &[
    "{{ ",
    " }}",
    "{% ",
    " %}",
    "{%- ",
    " -%}",
    "{#",
    "#}",
    "{% for m in messages %}",
    "{% endfor %}",
    "{% if ",
    "{% else %}",
    "{% elif ",
    "{% endif %}",
    "{% set x = ",
    "{% set ns = namespace(a=1) %}",
    "{% set ns.a = ns.a + 1 %}",
    "{% macro f(a, b=2) %}",
    "{% endmacro %}",
    "{{ f(1) }}",
    "{% break %}",
    "{% continue %}",
    "{% generation %}",
    "{% endgeneration %}",
    "{% raw %}",
    "{% endraw %}",
    "{% call f() %}",
    "{% endcall %}",
    "{% filter upper %}",
    "{% endfilter %}",
    "{% with a = 1 %}",
    "{% endwith %}",
    "{% include 'chat_template' %}",
    "{% extends 'chat_template' %}",
    "{% block a %}",
    "{% endblock %}",
    "{% import 'chat_template' as t %}",
    "m.role",
    "m['content']",
    "messages",
    "tools",
    "loop.index0",
    "loop.previtem",
    "loop(",
    " recursive",
    "range(1000000)",
    "range(0, 10**9)",
    "raise_exception('a\nb')",
    "strftime_now('%d %b %Y %j')",
    "strftime_now('%')",
    " | tojson",
    " | tojson(indent=4)",
    " | trim",
    " | length",
    " | list",
    " | join(',')",
    " | reverse",
    " | sort",
    " | map(attribute='a')",
    " | selectattr('a')",
    " | batch(3)",
    " | slice(3)",
    " | indent(100000)",
    " | replace('', 'a')",
    " | string",
    " | int",
    " | float",
    " | round(400)",
    " | default('')",
    " | items",
    " | unique",
    " | groupby('role')",
    " | format(1)",
    ".split('')",
    ".split('a', -1)",
    ".strip()",
    ".replace('', 'aa')",
    ".center(1000000000)",
    ".rjust(10**9)",
    ".zfill(10**9)",
    ".join(",
    ".items()",
    ".get('a')",
    ".startswith(('a',))",
    ".format(",
    "'%s' % 1",
    " ~ ",
    " * 1000000000",
    " * 9223372036854775807",
    " ** 99999",
    " // 0",
    " % 0",
    " / 0",
    "[::-1]",
    "[1:]",
    "[::0]",
    "[-9223372036854775808:]",
    " is defined",
    " is sequence",
    " in messages",
    " not in ",
    " and ",
    " or ",
    " == ",
    " < ",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "'",
    "\"",
    "\\",
    "\n",
    "{'a': 1}",
    "[1, 2]",
    "'a'",
    "9223372036854775807",
    "-1",
    "1e308",
    "0x",
    "none",
    "true",
    "bos_token",
    "eos_token",
    "\u{fdd0}",
    "\u{fdd1}",
    "\u{1f600}",
    "\u{0}",
    "<|im_start|>",
    "<|im_end|>",
    "self",
    "caller()",
    "varargs",
    "debug()",
    "lipsum(",
    "cycler(",
    "joiner(",
];

/// Changes the template or the messages.
pub fn mutate(data: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let [template, messages] = parts::split(data);
    let mut messages = messages.to_vec();
    let mut template = String::from_utf8_lossy(template).into_owned();
    if rng.below(4) == 0 {
        messages = json::mutate_text(&messages, rng)?;
    } else {
        (0..1 + rng.below(4)).for_each(|_| change(&mut template, rng));
    }
    Some(parts::join(&[template.into_bytes(), messages]))
}

fn change(template: &mut String, rng: &mut Rng) {
    let boundaries: Vec<usize> = template.char_indices().map(|(at, _)| at).chain([template.len()]).collect();
    let at = rng.below(boundaries.len());
    let far = (at + rng.below(40)).min(boundaries.len() - 1);
    let (start, end) = (boundaries[at], boundaries[far]);
    match rng.below(8) {
        0 => template.replace_range(start..end, ""),
        1 => {
            let piece = template[start..end].repeat(1 + rng.below(20));
            template.insert_str(start, &piece);
        }
        2 => {
            let piece = template[start..end].to_string();
            template.insert_str(boundaries[rng.below(boundaries.len())], &piece);
        }
        3 => template.replace_range(start..end, SNIPPETS[rng.below(SNIPPETS.len())]),
        _ => template.insert_str(start, SNIPPETS[rng.below(SNIPPETS.len())]),
    }
}
