// The shared library's own translation unit: it has no content, since everything comes from the
// module archives.
