//! A page with pictures and figures: one file without scripts, fonts or requests.

use std::fmt::Write as _;

use super::svg::escaped;

const STYLE: &str = "\
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:820px;margin:2rem auto;\
padding:0 1rem;background:#fff;color:#24292f}figure{margin:0;overflow-x:auto}\
svg{max-width:100%;min-width:640px;height:auto}pre{overflow-x:auto;\
background:#f6f8fa;padding:1rem;font-size:13px}@media(prefers-color-scheme:dark){body{background:#0d1117;\
color:#e6edf3}pre{background:#161b22}}";

/// A self-contained page: a title, pictures, and the same as text and as JSON.
///
/// ```
/// let page = redial_sim::chart::page("outage <1>", &["<svg></svg>".into()], "text", "{}");
/// assert!(page.contains("<title>outage &lt;1&gt;</title>"));
/// ```
#[must_use]
pub fn page(title: &str, pictures: &[String], text: &str, json: &str) -> String {
    let (title, text, json) = (escaped(title), lines(text), lines(json));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
    for picture in pictures {
        let _ = writeln!(page, "<figure>{picture}</figure>");
    }
    let _ = write!(
        page,
        "<details><summary>As text</summary><pre>{text}</pre></details>\n\
         <details><summary>As JSON</summary><pre>{json}</pre></details>\n</body>\n</html>\n"
    );
    page
}

/// A text of several lines, escaped.
fn lines(text: &str) -> String {
    text.lines().map(escaped).collect::<Vec<_>>().join("\n")
}
