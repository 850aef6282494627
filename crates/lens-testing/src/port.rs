//! Ports at which nobody listens.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use tokio::net::TcpSocket;

static HELD: Mutex<Vec<TcpSocket>> = Mutex::new(Vec::new());

/// A port of 127.0.0.1 that refuses connections until somebody listens at it by number.
///
/// It is held as long as this process runs: the system gives it to nobody who asks for any port, so what another test
/// starts meanwhile does not answer there.
pub fn free_port() -> u16 {
    let socket = TcpSocket::new_v4().expect("a socket");
    // With this, who names the port may have it all the same.
    socket.set_reuseaddr(true).expect("the option is known");
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
    let port = socket.local_addr().expect("an address").port();
    HELD.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
    port
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn held_port_refuses_is_given_to_no_other_and_can_be_had_by_number() {
        let ports: BTreeSet<u16> = (0..200).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 200);
        let at = |port| (Ipv4Addr::LOCALHOST, port);
        for &port in &ports {
            let error = TcpStream::connect(at(port)).expect_err("nobody listens");
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        }
        let others: Vec<TcpListener> = (0..200)
            .map(|_| TcpListener::bind(at(0)).expect("a port"))
            .inspect(|other| {
                assert!(!ports.contains(&other.local_addr().expect("an address").port()));
            })
            .collect();
        drop(others);
        for &port in &ports {
            let listener = TcpListener::bind(at(port)).expect("the port");
            TcpStream::connect(at(port)).expect("somebody listens");
            drop(listener);
        }
    }
}
