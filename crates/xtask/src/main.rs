//! The command behind `cargo xtask`; all of it is in the library, where it is tested.

use std::process::ExitCode;

fn main() -> ExitCode {
    xtask::main()
}
