//! The attempts that the layers above have made.

use gglib_core::retry::{ATTEMPT_HEADER, RetriesAbove};
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

const STAINLESS: &str = "x-stainless-retry-count";

fn read(headers: &[(&'static str, &str)]) -> u32 {
    let mut map = HeaderMap::new();
    for &(name, value) in headers {
        let value = HeaderValue::from_str(value).expect("a legal header value");
        map.append(HeaderName::from_static(name), value);
    }
    RetriesAbove::parse(&map).count()
}

#[test]
fn attempts_count_from_one_and_retries_from_none() {
    assert_eq!(read(&[]), 0);
    for (attempt, retries) in [("1", 0), ("2", 1), (" 4 ", 3), ("0", 0)] {
        assert_eq!(read(&[(ATTEMPT_HEADER, attempt)]), retries, "{attempt}");
    }
    for (count, retries) in [("0", 0), ("1", 1), ("2", 2)] {
        assert_eq!(read(&[(STAINLESS, count)]), retries, "{count}");
    }
    // An SDK that repeats what our client has repeated.
    assert_eq!(read(&[(STAINLESS, "2"), (ATTEMPT_HEADER, "3")]), 4);
    assert_eq!(read(&[(STAINLESS, "2"), (STAINLESS, "1")]), 2);
}

#[test]
fn a_client_cannot_say_just_anything() {
    for text in ["17", "4294967295", "4294967296", "99999999999999999999999"] {
        assert_eq!(read(&[(STAINLESS, text)]), RetriesAbove::MAX, "{text}");
        assert_eq!(read(&[(STAINLESS, text), (ATTEMPT_HEADER, text)]), RetriesAbove::MAX, "{text}");
    }
    for text in ["", "-1", "+1", "1.5", "two", "0x2", "1 2"] {
        assert_eq!(read(&[(STAINLESS, text)]), 0, "{text:?}");
        assert_eq!(read(&[(ATTEMPT_HEADER, text)]), 0, "{text:?}");
    }
    assert!(!RetriesAbove::NONE.is_retry());
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_read_without_panic(value in prop::collection::vec(any::<u8>(), 0..30)) {
        let mut headers = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            headers.insert(ATTEMPT_HEADER, value.clone());
            headers.insert(HeaderName::from_static(STAINLESS), value);
        }
        prop_assert!(RetriesAbove::parse(&headers).count() <= RetriesAbove::MAX);
    }
}
