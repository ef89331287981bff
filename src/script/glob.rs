//! Matching of an expected line with wildcards against an actual one.

/// Whether `line` fits `pattern`, in which `*` stands for any run of characters, an empty one
/// included. Cost: at most the product of both lengths.
pub(crate) fn fits(pattern: &str, line: &str) -> bool {
    let Some((head, mut rest)) = pattern.split_once('*') else {
        return pattern == line;
    };
    let Some(mut line) = line.strip_prefix(head) else {
        return false;
    };
    // Each literal between two wildcards takes its leftmost place: what is left over is then as
    // long as it can be, so no other choice could succeed where this one fails.
    while let Some((literal, after)) = rest.split_once('*') {
        let Some((_, left)) = line.split_once(literal) else {
            return false;
        };
        (line, rest) = (left, after);
    }
    line.ends_with(rest)
}

#[cfg(test)]
mod tests {
    use super::fits;
    use proptest::prelude::*;

    /// The definition, by trying every split.
    fn fits_slowly(pattern: &[char], line: &[char]) -> bool {
        match pattern.split_first() {
            None => line.is_empty(),
            Some(('*', rest)) => (0..=line.len()).any(|from| fits_slowly(rest, &line[from..])),
            Some((first, rest)) => line.first() == Some(first) && fits_slowly(rest, &line[1..]),
        }
    }

    #[test]
    fn a_wildcard_may_stand_for_nothing_but_literals_may_not_overlap() {
        assert!(fits("meta=*", "meta="));
        assert!(fits("error store: *", "error store: a * b"));
        assert!(!fits("ab*ba", "aba"));
        assert!(!fits("a", "ab"));
        assert!(fits("", ""));
    }

    proptest! {
        #[test]
        fn matching_agrees_with_trying_every_split(pattern in "[ab*]{0,7}", line in "[ab*]{0,8}") {
            let (p, l): (Vec<char>, Vec<char>) = (pattern.chars().collect(), line.chars().collect());
            prop_assert_eq!(fits(&pattern, &line), fits_slowly(&p, &l));
        }
    }
}
