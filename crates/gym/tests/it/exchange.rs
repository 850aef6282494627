//! Requests and replies of HTTP/1.1 written and read by hand, one a connection.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs};

/// Reads a request to its end; `None` when it breaks off.
pub fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&request);
        if is_whole(&text) {
            return Some(text.into_owned());
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(read) => request.extend_from_slice(&buffer[..read]),
        }
    }
}

fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    body.len() >= length.unwrap_or(0)
}

/// Answers with JSON; `status` may hold header lines behind it.
pub fn answer(stream: &mut TcpStream, status: &str, body: &str) {
    // Whoever asked may be gone: that is for the test to see.
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
}

/// Posts a body with these header lines and expects status 200.
pub fn post(address: impl ToSocketAddrs, path: &str, headers: &[&str], body: &str) {
    let mut lines = vec![
        format!("POST {path} HTTP/1.1"),
        "host: x".to_owned(),
        "connection: close".to_owned(),
        format!("content-length: {}", body.len()),
    ];
    lines.extend(headers.iter().map(|line| (*line).to_owned()));
    let mut stream = TcpStream::connect(address).expect("connects");
    write!(stream, "{}\r\n\r\n{body}", lines.join("\r\n")).expect("sends");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
}
