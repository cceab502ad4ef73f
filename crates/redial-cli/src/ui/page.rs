//! The files of the page. They are part of the program: the page makes no request to other servers.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use redial_sim::chart;

/// The width of pictures on phones, in pixels.
pub(super) const NARROW: f64 = 340.0;

/// A file of the page.
#[derive(Clone, Copy)]
pub(super) struct PageFile {
    /// The path below that of the page.
    pub(super) path: &'static str,
    kind: &'static str,
    content: fn() -> &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// All of them.
pub(super) const FILES: [PageFile; 8] = [
    PageFile {
        path: "",
        kind: "text/html; charset=utf-8",
        content: || include_str!("page/index.html"),
    },
    PageFile { path: "style.css", kind: STYLE, content: || include_str!("page/style.css") },
    PageFile { path: "chart.css", kind: STYLE, content: || &CHART },
    PageFile { path: "main.js", kind: SCRIPT, content: || include_str!("page/main.js") },
    PageFile { path: "editor.js", kind: SCRIPT, content: || include_str!("page/editor.js") },
    PageFile { path: "server.js", kind: SCRIPT, content: || include_str!("page/server.js") },
    PageFile { path: "figures.js", kind: SCRIPT, content: || include_str!("page/figures.js") },
    PageFile { path: "icon.svg", kind: "image/svg+xml", content: || include_str!("page/icon.svg") },
];

impl PageFile {
    pub(super) fn response(&self) -> Response {
        ([(header::CONTENT_TYPE, self.kind)], (self.content)()).into_response()
    }
}

/// The style of pictures, which are shown inline without their own style, so that they follow the theme
/// of the page and not only that of the system.
static CHART: LazyLock<String> = LazyLock::new(|| {
    let (light, dark) = chart::styles();
    format!(
        ".chart svg{{{light}}}\n:root[data-theme=dark] .chart svg{{{dark}}}\n\
         @media(prefers-color-scheme:dark){{:root:not([data-theme=light]) .chart svg{{{dark}}}}}\n"
    )
});
