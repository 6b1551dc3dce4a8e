//! A strict reader of the text format of Prometheus, version 0.0.4: what `promtool check metrics` objects to is an
//! error here too.

use std::collections::{BTreeMap, BTreeSet};

/// A metric as it was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) help: String,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// The metrics of `text` by name.
pub(crate) fn read(text: &str) -> Result<BTreeMap<String, Family>, String> {
    if !text.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        let fail = |problem: &str| Err(format!("{problem}: {line}"));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let Some((name, help)) = rest.split_once(' ').filter(|(_, help)| !help.is_empty()) else {
                return fail("no help");
            };
            if !is_name(name) || families.contains_key(name) {
                return fail("a bad name, or a metric in two places");
            }
            name.clone_into(&mut current);
            families.insert(current.clone(), Family { help: help.to_owned(), ..Family::default() });
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let family = families.get_mut(&current).filter(|family| family.kind.is_empty());
            match (rest.split_once(' '), family) {
                (Some((name, kind)), Some(family)) if name == current => kind.clone_into(&mut family.kind),
                _ => return fail("a type without its help"),
            }
        } else if line.is_empty() || line.starts_with('#') {
            return fail("neither help, type nor sample");
        } else {
            let sample = sample(line).ok_or_else(|| format!("not a sample: {line}"))?;
            let Some(family) = families.get_mut(&current) else { return fail("a sample without a metric") };
            if !belongs(&sample.name, &current, &family.kind) {
                return fail("a sample of another metric");
            }
            family.samples.push(sample);
        }
    }
    for (name, family) in &families {
        check(name, family).map_err(|problem| format!("{name}: {problem}"))?;
    }
    Ok(families)
}

fn belongs(sample: &str, family: &str, kind: &str) -> bool {
    match (sample.strip_prefix(family), kind) {
        (Some(suffix), "histogram") => ["_bucket", "_sum", "_count"].contains(&suffix),
        (Some(suffix), _) => suffix.is_empty(),
        (None, _) => false,
    }
}

fn check(name: &str, family: &Family) -> Result<(), String> {
    let unique: BTreeSet<_> = family.samples.iter().map(|s| (&s.name, &s.labels)).collect();
    if family.samples.is_empty() || unique.len() != family.samples.len() {
        return Err("no sample, or one twice".to_owned());
    }
    let is_counter = family.kind == "counter";
    if name.ends_with("_total") != is_counter {
        return Err("`_total` is for counters, and for all of them".to_owned());
    }
    let foreign_unit = ["_ms", "milliseconds", "minutes", "kilobytes", "percent"];
    if foreign_unit.iter().any(|unit| name.contains(unit))
        || ["_bucket", "_sum", "_count"].iter().any(|s| name.ends_with(s))
    {
        return Err("not in base units, or a reserved suffix".to_owned());
    }
    match family.kind.as_str() {
        "gauge" => Ok(()),
        "counter" if family.samples.iter().all(|sample| sample.value >= 0.0) => Ok(()),
        "counter" => Err("a negative counter".to_owned()),
        "histogram" => histogram(name, &family.samples),
        other => Err(format!("the type {other:?}")),
    }
}

fn histogram(name: &str, samples: &[Sample]) -> Result<(), String> {
    let mut series: BTreeMap<BTreeMap<String, String>, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        let mut labels = sample.labels.clone();
        labels.remove("le");
        series.entry(labels).or_default().push(sample);
    }
    for (labels, samples) in series {
        let of =
            |suffix: &str| samples.iter().filter(|s| s.name == format!("{name}{suffix}")).collect::<Vec<_>>();
        let mut buckets = Vec::new();
        for bucket in of("_bucket") {
            let bound =
                bucket.labels.get("le").and_then(|le| number(le)).ok_or("a bucket without a bound")?;
            buckets.push((bound, bucket.value));
        }
        let ascending = buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let (sum, count) = (of("_sum"), of("_count"));
        let all = buckets.last().filter(|(bound, _)| *bound == f64::INFINITY);
        match (all, &sum[..], &count[..]) {
            (Some((_, all)), [_], [count]) if ascending && all.total_cmp(&count.value).is_eq() => {}
            _ => return Err(format!("{labels:?} is no histogram")),
        }
    }
    Ok(())
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    let value = number(value.strip_prefix(' ')?)?;
    is_name(name).then(|| Sample { name: name.to_owned(), labels, value })
}

/// The labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        let (name, after) = rest.split_once("=\"")?;
        let is_label = is_name(name) && !name.contains(':') && !name.starts_with("__");
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    escaped @ ('\\' | '"') => escaped,
                    _ => return None,
                }),
                (_, char) => value.push(char),
            }
        };
        if !is_label || labels.insert(name.to_owned(), value).is_some() {
            return None;
        }
        rest = &after[end + 1..];
        match rest.strip_prefix('}') {
            Some(after) => return Some((labels, after)),
            None => rest = rest.strip_prefix(',')?,
        }
    }
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        _ => text.parse().ok().filter(|number: &f64| number.is_finite()),
    }
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || b"_:".contains(&byte));
    first && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_:".contains(&byte))
}

#[test]
fn what_is_not_the_format_is_an_error() {
    let good = "# HELP a_total A.\n# TYPE a_total counter\na_total{b=\"\\\"\\\\\\n,}\"} 1\n";
    assert_eq!(read(good).unwrap()["a_total"].samples[0].labels["b"], "\"\\\n,}");
    for bad in [
        "a_total 1\n",
        "# HELP a_total A.\n# TYPE a_total counter\n",
        "# HELP a_total A.\n# TYPE a_total counter\na_total 1",
        "# HELP a_total A.\n# TYPE a_total counter\na_total 1\na_total 1\n",
        "# HELP a_total A.\n# TYPE a_total counter\na_total -1\n",
        "# HELP a_total A.\n# TYPE a_total counter\nb_total 1\n",
        "# HELP a_total A.\n# TYPE a counter\na_total 1\n",
        "# HELP a_total A.\n# TYPE a_total counter\na_total{b=\"1\",b=\"2\"} 1\n",
        "# HELP a_total A.\n# TYPE a_total counter\na_total{b=\"\\x\"} 1\n",
        "# HELP a A.\n# TYPE a counter\na 1\n",
        "# HELP a_ms A.\n# TYPE a_ms gauge\na_ms 1\n",
        "# HELP a A.\n# TYPE a histogram\na_bucket{le=\"1\"} 1\na_sum 1\na_count 1\n",
        "# HELP a A.\n# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
        "# HELP a_total A.\n# TYPE a_total counter\na_total 1\n# EOF\n",
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
}
