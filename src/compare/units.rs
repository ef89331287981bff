//! Numbers as people read them: three significant digits and a unit.

/// 1234567 as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Three significant digits: 1.23, 12.3, 123.
fn significant(number: f64) -> String {
    let decimals = match number {
        number if number < 9.995 => 2,
        number if number < 99.95 => 1,
        _ => 0,
    };
    format!("{number:.decimals$}")
}

/// 1500.0 as `1.50 kB`, in steps of a thousand.
pub fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes < 999.5 {
        return format!("{bytes:.0} B");
    }
    let mut scaled = bytes / 1e3;
    let mut units = UNITS.iter().copied();
    let mut unit = units.next().unwrap_or("kB");
    for next in units {
        if scaled < 999.5 {
            break;
        }
        scaled /= 1e3;
        unit = next;
    }
    format!("{} {unit}", significant(scaled))
}

/// 1500.0 as `1.50 ms`.
pub fn micros(micros: f64) -> String {
    if micros < 999.5 { format!("{} µs", significant(micros)) } else { millis(micros / 1e3) }
}

/// 1500.0 as `1.50 s`.
pub fn millis(millis: f64) -> String {
    if millis < 999.5 {
        format!("{} ms", significant(millis))
    } else {
        format!("{} s", significant(millis / 1e3))
    }
}

/// 1.254 as `1.25×`.
pub fn times(ratio: f64) -> String {
    format!("{}×", significant(ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_carry_their_unit() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(bytes(12.0), "12 B");
        assert_eq!(bytes(999.6), "1.00 kB");
        assert_eq!(bytes(45_678.0), "45.7 kB");
        assert_eq!(bytes(1_234_567_890.0), "1.23 GB");
        assert_eq!(micros(9.996), "10.0 µs");
        assert_eq!(micros(12_345.0), "12.3 ms");
        assert_eq!(millis(2_500.0), "2.50 s");
        assert_eq!(times(1.254), "1.25×");
    }
}
