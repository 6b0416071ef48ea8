// A request's body as Beast's parser fills it: a string that grows with what arrives. Beast's own
// string_body takes the declared length at once, which costs the sender nothing. Internal to the
// HTTP core.
#pragma once

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/base/limits.h"

namespace bloomery::serve::internal {

struct HttpBody {
  using value_type = std::string;

  static uint64_t size(const value_type& body) { return body.size(); }

  class reader {  // NOLINT(readability-identifier-naming): Beast's name
   public:
    template <bool kIsRequest, class Fields>
    reader(boost::beast::http::header<kIsRequest, Fields>& /*head*/, value_type& body)
        : body_(body) {}

    void init(const boost::optional<uint64_t>& length, boost::system::error_code& error) {
      error = {};
      const uint64_t small = std::min<uint64_t>(length.value_or(0), limits::kSmallBodyBytesMax);
      body_.reserve(static_cast<size_t>(small));
    }

    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& error) {
      error = {};
      const size_t before = body_.size();
      for (auto it = boost::asio::buffer_sequence_begin(buffers);
           it != boost::asio::buffer_sequence_end(buffers); ++it) {
        const boost::asio::const_buffer piece(*it);
        body_.append(static_cast<const char*>(piece.data()), piece.size());
      }
      return body_.size() - before;
    }

    void finish(boost::system::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

}  // namespace bloomery::serve::internal
