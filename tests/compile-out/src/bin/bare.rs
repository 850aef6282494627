//! Prints the results of the bare functions.

fn main() {
    let value = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(11);
    println!("{:?}", compile_out::run_all!(bare, value));
}
