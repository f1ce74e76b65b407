// Whether a build is instrumented: for tests whose size or limit depends on what a step costs.
#pragma once

namespace headrace {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kHasAddressSanitizer = true;
#elif defined(__has_feature)
inline constexpr bool kHasAddressSanitizer = __has_feature(address_sanitizer);
#else
inline constexpr bool kHasAddressSanitizer = false;
#endif

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kHasThreadSanitizer = true;
#elif defined(__has_feature)
inline constexpr bool kHasThreadSanitizer = __has_feature(thread_sanitizer);
#else
inline constexpr bool kHasThreadSanitizer = false;
#endif

inline constexpr bool kIsInstrumented = kHasAddressSanitizer || kHasThreadSanitizer;

}  // namespace headrace
