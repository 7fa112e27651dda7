//! The controller's language: how requests are signed, what a job and a result look like. Foreign spellings stop here.

pub mod json;

pub mod signing;

pub mod request;

pub mod result;
