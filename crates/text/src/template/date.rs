//! Dates for templates that write today's.

use minijinja::{Error, ErrorKind};

/// A point in local time, given from outside: this crate has no clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// Year, such as 2026.
    pub year: i32,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 60.
    pub second: u8,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

impl LocalTime {
    /// Days since 1 January 1970 (civil calendar; Hinnant's `days_from_civil`).
    fn days(&self) -> i64 {
        let year = i64::from(self.year) - i64::from(self.month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let day_of_year = (153 * ((i64::from(self.month) + 9) % 12) + 2) / 5 + i64::from(self.day) - 1;
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
    }

    /// 0 is Monday; 1 January 1970 was a Thursday.
    fn weekday(&self) -> usize {
        (self.days() + 3).rem_euclid(7) as usize
    }

    fn day_of_year(&self) -> i64 {
        self.days() - Self { month: 1, day: 1, ..*self }.days() + 1
    }

    /// Python's `strftime` in the C locale.
    pub(super) fn strftime(&self, format: &str) -> Result<String, Error> {
        let name = |names: &[&'static str], index: usize| names.get(index).copied().unwrap_or("?");
        let month = name(&MONTHS, usize::from(self.month).wrapping_sub(1));
        let weekday = name(&DAYS, self.weekday());
        let hour12 = (u16::from(self.hour) + 11) % 12 + 1;
        let short = |name: &'static str| name.get(..3).unwrap_or(name);
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut directive = chars.next();
            let padded = directive != Some('-');
            if !padded {
                directive = chars.next();
            }
            let number = |value: i64, width: usize| {
                let width = if padded { width } else { 1 };
                format!("{value:0width$}")
            };
            out += &match directive {
                Some('Y') => self.year.to_string(),
                Some('y') => number(i64::from(self.year.rem_euclid(100)), 2),
                Some('m') => number(self.month.into(), 2),
                Some('d') => number(self.day.into(), 2),
                Some('e') => format!("{:2}", self.day),
                Some('j') => number(self.day_of_year(), 3),
                Some('H') => number(self.hour.into(), 2),
                Some('I') => number(hour12.into(), 2),
                Some('M') => number(self.minute.into(), 2),
                Some('S') => number(self.second.into(), 2),
                Some('p') => if self.hour < 12 { "AM" } else { "PM" }.to_owned(),
                Some('B') => month.to_owned(),
                Some('b' | 'h') => short(month).to_owned(),
                Some('A') => weekday.to_owned(),
                Some('a') => short(weekday).to_owned(),
                Some('w') => ((self.weekday() + 1) % 7).to_string(),
                Some('u') => (self.weekday() + 1).to_string(),
                Some('F') => format!("{}-{:02}-{:02}", self.year, self.month, self.day),
                Some('T') => format!("{:02}:{:02}:{:02}", self.hour, self.minute, self.second),
                Some('R') => format!("{:02}:{:02}", self.hour, self.minute),
                Some('D') => format!("{:02}/{:02}/{:02}", self.month, self.day, self.year.rem_euclid(100)),
                Some('z' | 'Z') => String::new(), // a time without a zone, as in the reference
                Some('%') => "%".to_owned(),
                other => {
                    let directive = other.map_or_else(|| "%".to_owned(), |c| format!("%{c}"));
                    let detail = format!("strftime_now: `{}` is not supported", directive.escape_debug());
                    return Err(Error::new(ErrorKind::InvalidOperation, detail));
                }
            };
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strftime_as_python_has_it() {
        let time = LocalTime { year: 2024, month: 7, day: 6, hour: 0, minute: 5, second: 9 };
        let check = |format, want| assert_eq!(time.strftime(format).unwrap(), want, "{format}");
        check("%d %b %Y", "06 Jul 2024");
        check("%Y-%m-%dT%H:%M:%S", "2024-07-06T00:05:09");
        check("%A, %B %-d, %y; %I:%M %p, day %j, %a %w %u%%", "Saturday, July 6, 24; 12:05 AM, day 188, Sat 6 6%");
        check("%F %T %R %D %e|%Z", "2024-07-06 00:05:09 00:05 07/06/24  6|");
        assert!(time.strftime("%Q").is_err());
        let leap = LocalTime { year: 2000, month: 2, day: 29, hour: 23, minute: 59, second: 60 };
        assert_eq!(leap.strftime("%a %j %I %p").unwrap(), "Tue 060 11 PM");
    }

    #[test]
    fn nonsense_dates_do_not_panic() {
        for (month, day) in [(0, 0), (13, 255), (255, 0)] {
            let time = LocalTime { year: i32::MIN, month, day, hour: 255, minute: 255, second: 255 };
            let _ = time.strftime("%A %B %j %I %y %F %c");
            let _ = time.strftime("%A %B %j %y %F");
        }
    }
}
