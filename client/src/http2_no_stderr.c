/* nghttp2's archive is not position independent where it names stderr (in a debug print that
 * nothing calls); the build renames that reference to this. */
__attribute__((visibility("hidden"))) void* arcomm_http2_no_stderr;
