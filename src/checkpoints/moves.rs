//! Moved files: pairs of a deleted and a created file with the same or a similar content.
//!
//! Similarity is that of git: the share of the larger content that lines of both sides make up.
//! Source: `diffcore-delta.c`.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::{BuildHasher, RandomState},
};

use super::{
    compare::{ChangeSide, ContentReader},
    entry::ContentHash,
};
use crate::files::InnerPath;

/// Lowest similarity of a moved file, per cent. Source: git.
const MIN_SIMILARITY: u64 = 50;
/// Highest similarity of different contents, per cent.
const MAX_SIMILARITY: u64 = 99;
/// Files of each side that are compared with all files of the other one. Of more files, only those
/// with a name that both sides have.
const MAX_CANDIDATES: usize = 200;
/// Size of a file beyond which no similar file is looked for, bytes.
const CANDIDATE_BYTES: u64 = 1 << 20;
/// Size of all candidates that are read, bytes.
const READ_BYTES: u64 = 64 << 20;
/// Longest part of a line that is compared as one, bytes. Source: git.
const CHUNK_BYTES: usize = 64;

/// Move of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundMove {
    pub from: InnerPath,
    pub to: InnerPath,
    /// Share of the content that is the same, per cent.
    pub similarity: u8,
}

/// Sizes of a content's chunks, by their hashes.
struct ContentChunks(HashMap<u64, u64>);

/// Finds the moves between files that are gone and files that are new.
pub(super) fn find_moves(gone: Vec<ChangeSide>, new: Vec<ChangeSide>, reader: &ContentReader<'_>) -> Vec<FoundMove> {
    let key = |side: &ChangeSide| (side.file.hash, side.file.mode.is_link());
    let mut by_content: HashMap<(ContentHash, bool), VecDeque<ChangeSide>> = HashMap::new();
    // Empty files have nothing in common.
    for side in gone.into_iter().filter(|side| side.file.size > 0) {
        by_content.entry(key(&side)).or_default().push_back(side);
    }
    let (mut moves, mut unmatched) = (Vec::new(), Vec::new());
    for side in new.into_iter().filter(|side| side.file.size > 0) {
        match by_content.get_mut(&key(&side)).and_then(VecDeque::pop_front) {
            Some(from) => moves.push(FoundMove { from: from.path, to: side.path, similarity: 100 }),
            None => unmatched.push(side),
        }
    }
    let mut gone: Vec<ChangeSide> = by_content.into_values().flatten().collect();
    gone.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    moves.extend(similar_moves(gone, unmatched, reader));
    moves
}

/// Finds pairs of files with similar contents. The most similar pairs come first.
fn similar_moves(mut gone: Vec<ChangeSide>, mut new: Vec<ChangeSide>, reader: &ContentReader<'_>) -> Vec<FoundMove> {
    for side in [&mut gone, &mut new] {
        side.retain(|side| !side.file.mode.is_link() && side.file.size <= CANDIDATE_BYTES);
    }
    if gone.len() > MAX_CANDIDATES || new.len() > MAX_CANDIDATES {
        keep_common_names(&mut gone, &mut new);
    }
    if gone.is_empty() || new.is_empty() {
        return Vec::new();
    }
    let (hasher, mut room) = (RandomState::new(), READ_BYTES);
    let mut chunks = |side: &ChangeSide| {
        room = room.checked_sub(side.file.size)?;
        // A damaged content is not similar to any.
        Some(ContentChunks::of(&reader.content(side).ok()?, &hasher))
    };
    let gone: Vec<_> = gone.iter().filter_map(|side| Some((side, chunks(side)?))).collect();
    let new: Vec<_> = new.iter().filter_map(|side| Some((side, chunks(side)?))).collect();
    let mut pairs = Vec::new();
    for (from, old_chunks) in &gone {
        for (to, new_chunks) in &new {
            let (smaller, larger) = (from.file.size.min(to.file.size), from.file.size.max(to.file.size));
            if smaller * 100 < larger * MIN_SIMILARITY {
                continue;
            }
            let similarity = old_chunks.shared_bytes(new_chunks) * 100 / larger;
            if similarity >= MIN_SIMILARITY {
                pairs.push((similarity.min(MAX_SIMILARITY), from.path.name() == to.path.name(), *from, *to));
            }
        }
    }
    pairs.sort_by_key(|(similarity, has_name, ..)| std::cmp::Reverse((*similarity, *has_name)));
    let (mut moved, mut moves) = (HashSet::new(), Vec::new());
    for (similarity, _, from, to) in pairs {
        if moved.contains(&from.path) || moved.contains(&to.path) {
            continue;
        }
        moved.extend([&from.path, &to.path]);
        let similarity = u8::try_from(similarity).unwrap_or_default();
        moves.push(FoundMove { from: from.path.clone(), to: to.path.clone(), similarity });
    }
    moves
}

/// Keeps files whose name both sides have, in the order of their paths.
fn keep_common_names(gone: &mut Vec<ChangeSide>, new: &mut Vec<ChangeSide>) {
    let names =
        |sides: &[ChangeSide]| -> HashSet<Vec<u8>> { sides.iter().map(|side| side.path.name().to_vec()).collect() };
    let (gone_names, new_names) = (names(gone), names(new));
    for side in [gone, new] {
        side.retain(|side| gone_names.contains(side.path.name()) && new_names.contains(side.path.name()));
        side.truncate(MAX_CANDIDATES);
    }
}

impl ContentChunks {
    fn of(content: &[u8], hasher: &RandomState) -> ContentChunks {
        let mut sizes = HashMap::new();
        for line in content.split_inclusive(|byte| *byte == b'\n') {
            for chunk in line.chunks(CHUNK_BYTES) {
                *sizes.entry(hasher.hash_one(chunk)).or_default() += chunk.len() as u64;
            }
        }
        ContentChunks(sizes)
    }

    /// Returns the size of what both contents have.
    fn shared_bytes(&self, other: &ContentChunks) -> u64 {
        let (fewer, more) = if self.0.len() <= other.0.len() { (self, other) } else { (other, self) };
        fewer.0.iter().filter_map(|(hash, size)| Some(*size.min(more.0.get(hash)?))).sum()
    }
}
