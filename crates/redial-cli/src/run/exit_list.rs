//! Lists of exit codes and signals: `1-3,75,SIGKILL,signal`.

use std::ops::RangeInclusive;
use std::str::FromStr;

/// Exit codes and signals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExitList {
    codes: Vec<RangeInclusive<i32>>,
    signals: Vec<i32>,
    any_signal: bool,
}

impl ExitList {
    /// Whether the list has this exit code.
    #[must_use]
    pub fn has_code(&self, code: i32) -> bool {
        self.codes.iter().any(|range| range.contains(&code))
    }

    /// Whether the list has this signal.
    #[must_use]
    pub fn has_signal(&self, signal: i32) -> bool {
        self.any_signal || self.signals.contains(&signal)
    }
}

impl FromStr for ExitList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut list = ExitList::default();
        for item in text.split(',').map(str::trim) {
            if item.eq_ignore_ascii_case("signal") {
                list.any_signal = true;
            } else if item.starts_with(|c: char| c.is_ascii_alphabetic()) {
                list.signals.push(signal_number(item)?);
            } else {
                list.codes.push(range(item)?);
            }
        }
        Ok(list)
    }
}

/// One code, or a range like `1-3`.
fn range(item: &str) -> Result<RangeInclusive<i32>, String> {
    let code = |text: &str| text.parse::<u8>().map(i32::from).ok();
    let (first, last) = item.split_once('-').unwrap_or((item, item));
    match (code(first), code(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err(format!(
            "{item:?} is no exit code from 0 to 255, no range like 1-3 and no signal like SIGTERM"
        )),
    }
}

fn signal_number(item: &str) -> Result<i32, String> {
    let upper = item.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let found = SIGNALS.iter().find(|(known, _)| *known == name);
    found.map(|(_, number)| *number).ok_or_else(|| {
        let known: Vec<_> = SIGNALS.iter().map(|(name, _)| *name).collect();
        format!(
            "{item:?} is no signal; expected one of {}, or \"signal\" for any",
            known.join(", ")
        )
    })
}

/// The name of a signal, like `SIGTERM`; a number without a name is printed as it is.
pub(super) fn signal_name(number: i32) -> String {
    match SIGNALS.iter().find(|(_, known)| *known == number) {
        Some((name, _)) => format!("SIG{name}"),
        None => format!("signal {number}"),
    }
}

#[cfg(unix)]
const SIGNALS: [(&str, i32); 15] = {
    use rustix::process::Signal;
    [
        ("HUP", Signal::HUP.as_raw()),
        ("INT", Signal::INT.as_raw()),
        ("QUIT", Signal::QUIT.as_raw()),
        ("ILL", Signal::ILL.as_raw()),
        ("TRAP", Signal::TRAP.as_raw()),
        ("ABRT", Signal::ABORT.as_raw()),
        ("BUS", Signal::BUS.as_raw()),
        ("FPE", Signal::FPE.as_raw()),
        ("KILL", Signal::KILL.as_raw()),
        ("USR1", Signal::USR1.as_raw()),
        ("SEGV", Signal::SEGV.as_raw()),
        ("USR2", Signal::USR2.as_raw()),
        ("PIPE", Signal::PIPE.as_raw()),
        ("ALRM", Signal::ALARM.as_raw()),
        ("TERM", Signal::TERM.as_raw()),
    ]
};
#[cfg(not(unix))]
const SIGNALS: [(&str, i32); 0] = [];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_list_has_codes_and_ranges() {
        let list: ExitList = "1-3, 75".parse().unwrap();
        let found: Vec<_> = (0..=255).filter(|code| list.has_code(*code)).collect();
        assert_eq!(found, [1, 2, 3, 75]);
        assert!(!list.has_signal(15));
    }

    #[cfg(unix)]
    #[test]
    fn exit_list_has_signals_by_name() {
        let list: ExitList = "SIGTERM,kill".parse().unwrap();
        assert!(list.has_signal(15) && list.has_signal(9) && !list.has_signal(2));
        let any: ExitList = "signal".parse().unwrap();
        assert!(any.has_signal(64) && !any.has_code(1));
        assert_eq!((signal_name(15).as_str(), signal_name(64).as_str()), ("SIGTERM", "signal 64"));
    }

    #[test]
    fn exit_list_errors_name_the_item() {
        for wrong in ["", "1,", "256", "3-1", "-1", "1-", "SIGWHAT"] {
            let error = wrong.parse::<ExitList>().unwrap_err();
            assert!(
                error.contains("expected one of") || error.contains("is no exit code"),
                "{error}"
            );
        }
    }
}
