//! Colours: on terminals only, and never with `NO_COLOR`.

use anstream::ColorChoice;
use anstream::stream::RawStream;

/// Whether this stream shows colours: it is a terminal, `NO_COLOR` is unset and `TERM` is not
/// `dumb`; or `CLICOLOR_FORCE` asks for them.
#[must_use]
pub fn is_on(stream: &impl RawStream) -> bool {
    match anstream::AutoStream::choice(stream) {
        ColorChoice::Never => false,
        ColorChoice::Always | ColorChoice::AlwaysAnsi | ColorChoice::Auto => true,
    }
}
