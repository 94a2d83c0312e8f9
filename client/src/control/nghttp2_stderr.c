/* Debian builds nghttp2's archive for programs (-fPIE): of all its references only that to libc's
 * stderr, in a debug print that nothing calls, cannot be part of a shared library. This definition,
 * hidden inside libarclient, takes its place; the library itself prints nothing. */
__attribute__((visibility("hidden"))) void* stderr;
