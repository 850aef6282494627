mod against_model;
mod errors;
mod fixture;
mod meaning;
mod stored;
