//! How the ranks of one node tell each other what they have: every pair once, by
//! abstract Unix sockets, so that nothing is left behind.
//!
//! Each rank listens under a name that all can make up from their environment. A rank
//! calls those with lower numbers; caller and called swap their words on the one
//! connection, so both know when they have heard each other. Who has heard all may end
//! at once. Nobody waits in a system call but in poll(2), which has the deadline.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::getuid;

/// How often ranks that were not there are called again.
const TICK: Duration = Duration::from_millis(20);
/// The longest message. It fits into a socket's buffer, so sending never waits.
const MOST: usize = 64 * 1024;

/// The ranks of one node that can meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Circle {
    /// What they all call it: the same for all, and for no other circle of the node.
    pub name: String,
    /// The calling rank's place in it, from 0.
    pub place: usize,
    /// How many places it has.
    pub size: usize,
}

/// What the others have said, by place; nothing for the own place and for those that
/// were not heard.
pub type Heard = Vec<Option<String>>;

/// Says `word` to all others of the circle and hears theirs, until all are heard or the
/// time is over.
///
/// # Errors
/// The system refuses sockets.
pub fn meet(circle: &Circle, word: &str, time: Duration) -> io::Result<Heard> {
    let begin = Instant::now();
    let mut meeting = Meeting {
        circle,
        message: format!("{}\n{word}", circle.place),
        heard: vec![None; circle.size],
        calls: BTreeMap::new(),
        visits: Vec::new(),
    };
    if meeting.message.len() > MOST {
        return Err(io::Error::new(ErrorKind::FileTooLarge, "the message is too long"));
    }
    let mut listener = None;
    loop {
        // Another report of the same rank may be at its end, and have the name until then.
        if listener.is_none() {
            listener = open(circle)?;
        }
        if let Some(listener) = &listener {
            meeting.receive(listener)?;
        }
        meeting.call()?;
        meeting.listen();
        let rest = time.saturating_sub(begin.elapsed());
        if meeting.has_heard_all() || rest.is_zero() {
            return Ok(meeting.heard);
        }
        meeting.wait(listener.as_ref(), rest.min(TICK))?;
    }
}

struct Meeting<'a> {
    circle: &'a Circle,
    message: String,
    heard: Heard,
    /// Connections to ranks that this one has called.
    calls: BTreeMap<usize, Talk>,
    /// Connections of ranks that have called this one.
    visits: Vec<Talk>,
}

/// A connection, and what it has brought so far.
struct Talk {
    stream: UnixStream,
    text: Vec<u8>,
}

impl Meeting<'_> {
    fn has_heard_all(&self) -> bool {
        let others = self.heard.iter().enumerate().filter(|(at, _)| *at != self.circle.place);
        others.map(|(_, word)| word).all(Option::is_some)
    }

    /// Takes visitors in; only the same user's, since any can use the name.
    fn receive(&mut self, listener: &UnixListener) -> io::Result<()> {
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    let uid = socket_peercred(&stream).map(|peer| peer.uid);
                    if uid == Ok(getuid()) && stream.set_nonblocking(true).is_ok() {
                        self.visits.push(Talk { stream, text: Vec::new() });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The visitor is gone already.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Calls the lower ranks that are not heard yet.
    fn call(&mut self) -> io::Result<()> {
        for place in 0..self.circle.place {
            let is_heard = self.heard.get(place).is_some_and(Option::is_some);
            if is_heard || self.calls.contains_key(&place) {
                continue;
            }
            let Some(mut stream) = reach(self.circle, place)? else { continue };
            let said = stream.write_all(self.message.as_bytes());
            if said.and_then(|()| stream.shutdown(Shutdown::Write)).is_ok() {
                self.calls.insert(place, Talk { stream, text: Vec::new() });
            }
        }
        Ok(())
    }

    /// Takes in what has come, and answers visitors that have said all.
    fn listen(&mut self) {
        let heard = &mut self.heard;
        self.calls.retain(|place, talk| match talk.hear() {
            Some(over) => {
                // A rank that has ended its talk without a word wants to be called again.
                if let Some((from, word)) = over {
                    if from == *place {
                        put(heard, from, word);
                    }
                }
                false
            }
            None => true,
        });
        let (own, message) = (self.circle.place, self.message.as_bytes());
        self.visits.retain_mut(|talk| match talk.hear() {
            Some(Some((from, word))) => {
                // One that was heard already is in its next meeting, and not answered
                // in this one.
                let is_new = from > own && heard.get(from).is_some_and(Option::is_none);
                if is_new && talk.stream.write_all(message).is_ok() {
                    put(heard, from, word);
                }
                false
            }
            Some(None) => false,
            None => true,
        });
    }

    /// Waits until something can be read, or for `time`.
    fn wait(&self, listener: Option<&UnixListener>, time: Duration) -> io::Result<()> {
        let talks = self.calls.values().chain(&self.visits).map(|talk| talk.stream.as_fd());
        let fds = listener.map(AsFd::as_fd).into_iter().chain(talks);
        let mut fds: Vec<PollFd> =
            fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Talk {
    /// Reads what is there. `Some` at its end: the speaker's place and word, or nothing
    /// that makes sense.
    fn hear(&mut self) -> Option<Option<(usize, String)>> {
        let mut buffer = [0; 4096];
        while self.text.len() <= MOST {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Some(parsed(&self.text)),
                Ok(count) => self.text.extend(buffer.iter().take(count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        Some(None)
    }
}

fn put(heard: &mut Heard, place: usize, word: String) {
    if let Some(heard) = heard.get_mut(place) {
        *heard = Some(word);
    }
}

fn parsed(text: &[u8]) -> Option<(usize, String)> {
    let (place, word) = std::str::from_utf8(text).ok()?.split_once('\n')?;
    Some((place.parse().ok()?, word.to_owned()))
}

fn address(circle: &Circle, place: usize) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("{}-{place}", circle.name).as_bytes())?)
}

fn socket() -> io::Result<rustix::fd::OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Listens under the own name; `None` where somebody else has it.
fn open(circle: &Circle) -> io::Result<Option<UnixListener>> {
    let socket = socket()?;
    match bind(&socket, &address(circle, circle.place)?) {
        Ok(()) => {}
        Err(rustix::io::Errno::ADDRINUSE) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    listen(&socket, i32::try_from(circle.size).unwrap_or(i32::MAX).max(1))?;
    Ok(Some(socket.into()))
}

/// A connection to a rank; `None` where it does not listen, has no room, or is
/// somebody else's.
fn reach(circle: &Circle, place: usize) -> io::Result<Option<UnixStream>> {
    let socket = socket()?;
    if connect(&socket, &address(circle, place)?).is_err() {
        return Ok(None);
    }
    let is_ours = socket_peercred(&socket).is_ok_and(|peer| peer.uid == getuid());
    Ok(is_ours.then(|| socket.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circle(name: &str, place: usize, size: usize) -> Circle {
        Circle { name: format!("gpubind-test-{}-{name}", std::process::id()), place, size }
    }

    /// What each of these ranks hears.
    fn met(name: &str, places: &[usize], size: usize, time: Duration) -> Vec<Heard> {
        std::thread::scope(|scope| {
            let meet = |place: &usize| {
                let circle = circle(name, *place, size);
                let word = format!("word of {place}");
                scope.spawn(move || meet(&circle, &word, time).unwrap())
            };
            let threads: Vec<_> = places.iter().map(meet).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn all_hear_all() {
        for size in [1, 2, 3, 17] {
            let places: Vec<usize> = (0..size).collect();
            let all = met("all", &places, size, Duration::from_secs(20));
            for (place, heard) in all.iter().enumerate() {
                for (other, word) in heard.iter().enumerate() {
                    let expected = (other != place).then(|| format!("word of {other}"));
                    assert_eq!(*word, expected, "{place} of {size}");
                }
            }
        }
    }

    #[test]
    fn who_is_missing_costs_the_deadline_and_nothing_else() {
        let begin = Instant::now();
        let heard = met("missing", &[0, 1, 3], 4, Duration::from_millis(400));
        assert!(begin.elapsed() >= Duration::from_millis(400));
        assert!(begin.elapsed() < Duration::from_secs(5));
        for heard in heard {
            let missing: Vec<usize> = (0..4).filter(|at| heard[*at].is_none()).collect();
            assert_eq!(missing.len(), 2, "itself and 2: {heard:?}");
            assert!(missing.contains(&2));
        }
    }

    #[test]
    fn one_meeting_after_the_other_never_mixes() {
        // A rank that is through with one meeting begins the next while others are still
        // in the first.
        std::thread::scope(|scope| {
            for place in 0..6 {
                scope.spawn(move || {
                    for round in 0..20 {
                        let circle = circle("rounds", place, 6);
                        let word = round.to_string();
                        let heard = meet(&circle, &word, Duration::from_secs(30)).unwrap();
                        let others = heard.iter().enumerate().filter(|(at, _)| *at != place);
                        for (other, said) in others {
                            assert_eq!(said.as_ref(), Some(&word), "{other} to {place}");
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn one_that_says_nothing_holds_nobody_up() {
        let silent = circle("silent", 0, 3);
        let listener = open(&silent).unwrap().unwrap();
        let begin = Instant::now();
        let heard = met("silent", &[1, 2], 3, Duration::from_millis(400));
        assert!(begin.elapsed() < Duration::from_secs(5));
        assert_eq!(heard[0][2].as_deref(), Some("word of 2"));
        assert_eq!(heard[1][1].as_deref(), Some("word of 1"));
        assert_eq!((&heard[0][0], &heard[1][0]), (&None, &None));
        drop(listener);
    }
}
