//! Texts that are nearly right: good ones with pieces taken out, doubled and put in.
#![allow(dead_code, reason = "not every test needs all of it")]

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// What numbers and names may become: limits, signs, other scripts, control characters.
const PIECES: [&str; 40] = [
    "",
    "0",
    "1",
    "-1",
    "00",
    "07",
    "4095",
    "4097",
    "65535",
    "65536",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "NaN",
    "0x",
    "0xfffffffffffffffff",
    "[",
    "]",
    "[]",
    "{",
    "}",
    "(",
    ")",
    "(x",
    ",",
    ",,",
    "-",
    "/",
    "/0",
    ":",
    ";",
    "=",
    "\"",
    "\\",
    "\n",
    "\t",
    "\u{0}",
    "\u{1F600}\u{202e}é",
];

/// One change of a text.
#[derive(Debug, Clone)]
enum Edit {
    Insert(Index, String),
    Remove(Index, usize),
    Double(Index, usize, usize),
    Cut(Index),
}

fn edit(words: &'static [&'static str]) -> impl Strategy<Value = Edit> {
    let piece = prop_oneof![
        3 => select(&PIECES[..]).prop_map(str::to_owned),
        3 => select(words).prop_map(str::to_owned),
        1 => "\\PC{0,12}",
    ];
    prop_oneof![
        4 => (any::<Index>(), piece).prop_map(|(at, piece)| Edit::Insert(at, piece)),
        3 => (any::<Index>(), 1usize..12).prop_map(|(at, count)| Edit::Remove(at, count)),
        2 => (any::<Index>(), 1usize..40, 1usize..40).prop_map(|(at, l, n)| Edit::Double(at, l, n)),
        1 => any::<Index>().prop_map(Edit::Cut),
    ]
}

fn apply(text: &mut Vec<char>, edit: &Edit) {
    let place = |at: &Index, text: &Vec<char>| at.index(text.len() + 1);
    match edit {
        Edit::Insert(at, piece) => {
            let at = place(at, text);
            text.splice(at..at, piece.chars());
        }
        Edit::Remove(at, count) => {
            let at = place(at, text);
            text.drain(at..text.len().min(at + count));
        }
        Edit::Double(at, length, count) => {
            let at = place(at, text);
            let piece: Vec<char> = text[at..text.len().min(at + length)].to_vec();
            text.splice(at..at, piece.iter().cycle().take(piece.len() * count).copied());
        }
        Edit::Cut(at) => text.truncate(place(at, text)),
    }
}

/// A good text after some changes; `words` are the format's own.
pub fn mutated(good: Vec<String>, words: &'static [&'static str]) -> impl Strategy<Value = String> {
    (select(good), vec(edit(words), 0..8)).prop_map(|(text, edits)| {
        let mut text: Vec<char> = text.chars().collect();
        edits.iter().for_each(|edit| apply(&mut text, edit));
        text.into_iter().collect()
    })
}

/// Any text, made of a format's words as often as of anything else.
pub fn any_text(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    let piece = prop_oneof![select(&PIECES[..]), select(words)];
    prop_oneof![
        vec(piece, 0..24).prop_map(|pieces| pieces.concat()),
        "(?s).{0,64}",
        vec(any::<u8>(), 0..64).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
    ]
}
