// How values lie in a module's bytes, as TVM's compiler writes them: numbers in little-endian order,
// which wasm's memory has too; strings and containers after their count, of 64 bits.

#ifndef MLCC_WASM_SUPPORT_SERIALIZER_H_
#define MLCC_WASM_SUPPORT_SERIALIZER_H_

#include <dlpack/dlpack.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/string.h>
#include <tvm/support/io.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tvm::support {

// Numbers, enumerations, and DLPack's structures of them without padding.
template <typename T>
inline constexpr bool lies_as_in_memory =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, DLDataType> ||
    std::is_same_v<T, DLDevice>;

static_assert(sizeof(DLDataType) == 4 && sizeof(DLDevice) == 8);

template <typename T>
struct Serializer<T, std::enable_if_t<lies_as_in_memory<T>>> {
  static constexpr bool enabled = true;

  static bool Read(Stream* stream, T* value) {
    return stream->Read(static_cast<void*>(value), sizeof(T)) == sizeof(T);
  }

  static void Write(Stream* stream, const T& value) {
    stream->Write(static_cast<const void*>(&value), sizeof(T));
  }
};

// A count, then the items, each of which `add` puts in its container.
template <typename Item, typename Add>
bool ReadItems(Stream* stream, Add add) {
  uint64_t left;
  if (!stream->Read(&left)) return false;
  for (; left > 0; --left) {
    Item item{};
    if (!stream->Read(&item)) return false;
    add(std::move(item));
  }
  return true;
}

template <typename Container>
void WriteItems(Stream* stream, const Container& items) {
  stream->Write(static_cast<uint64_t>(items.size()));
  for (const auto& item : items) stream->Write(item);
}

template <>
struct Serializer<std::string> {
  static constexpr bool enabled = true;

  static bool Read(Stream* stream, std::string* value) {
    uint64_t size;
    if (!stream->Read(&size)) return false;
    value->resize(size);
    return stream->ReadArray(value->data(), size);
  }

  static void Write(Stream* stream, const std::string& value) {
    stream->Write(static_cast<uint64_t>(value.size()));
    stream->WriteArray(value.data(), value.size());
  }
};

template <>
struct Serializer<ffi::String> {
  static constexpr bool enabled = true;

  static bool Read(Stream* stream, ffi::String* value) {
    std::string text;
    if (!stream->Read(&text)) return false;
    *value = ffi::String(std::move(text));
    return true;
  }

  static void Write(Stream* stream, const ffi::String& value) {
    stream->Write(static_cast<std::string>(value));
  }
};

template <typename First, typename Second>
struct Serializer<std::pair<First, Second>> {
  static constexpr bool enabled = true;

  static bool Read(Stream* stream, std::pair<First, Second>* value) {
    return stream->Read(&value->first) && stream->Read(&value->second);
  }

  static void Write(Stream* stream, const std::pair<First, Second>& value) {
    stream->Write(value.first);
    stream->Write(value.second);
  }
};

template <typename T>
struct Serializer<std::vector<T>> {
  static constexpr bool enabled = true;

  static bool Read(Stream* stream, std::vector<T>* value) {
    value->clear();
    return ReadItems<T>(stream, [value](T item) { value->push_back(std::move(item)); });
  }

  static void Write(Stream* stream, const std::vector<T>& value) { WriteItems(stream, value); }
};

template <typename T>
struct Serializer<ffi::Array<T>> {
  static constexpr bool enabled = true;

  static bool Read(Stream* stream, ffi::Array<T>* value) {
    *value = ffi::Array<T>();
    return ReadItems<T>(stream, [value](T item) { value->push_back(std::move(item)); });
  }

  static void Write(Stream* stream, const ffi::Array<T>& value) { WriteItems(stream, value); }
};

template <typename Key, typename Value>
struct Serializer<std::unordered_map<Key, Value>> {
  static constexpr bool enabled = true;

  static bool Read(Stream* stream, std::unordered_map<Key, Value>* value) {
    value->clear();
    return ReadItems<std::pair<Key, Value>>(
        stream, [value](std::pair<Key, Value> item) { value->insert(std::move(item)); });
  }

  static void Write(Stream* stream, const std::unordered_map<Key, Value>& value) {
    WriteItems(stream, value);
  }
};

template <typename Key, typename Value>
struct Serializer<ffi::Map<Key, Value>> {
  static constexpr bool enabled = true;

  static bool Read(Stream* stream, ffi::Map<Key, Value>* value) {
    *value = ffi::Map<Key, Value>();
    uint64_t left;
    if (!stream->Read(&left)) return false;
    for (; left > 0; --left) {
      Key key;
      Value item{ffi::UnsafeInit{}};  // what a map holds need not have an empty value
      if (!stream->Read(&key) || !stream->Read(&item)) return false;
      value->Set(std::move(key), std::move(item));
    }
    return true;
  }

  static void Write(Stream* stream, const ffi::Map<Key, Value>& value) {
    WriteItems(stream, value);
  }
};

}  // namespace tvm::support

#endif  // MLCC_WASM_SUPPORT_SERIALIZER_H_
