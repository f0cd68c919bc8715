// A JSON text as a flat list of nodes: one pass, no allocation for each value, 12 bytes a node.
#ifndef MLCC_TOKENIZER_JSON_H_
#define MLCC_TOKENIZER_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mlcc::tokenizer {

class Value;

// Owns the text, in which strings are unescaped in place.
class Json {
 public:
  // Throws Invalid for what is no JSON, or is nested deeper than 64.
  explicit Json(std::string text);
  Json(const Json&) = delete;
  Value root() const;

 private:
  friend class Value;
  friend class JsonReader;
  enum class Kind : uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };
  struct Node {
    uint32_t begin;  // in the text
    uint32_t size;   // bytes, or for arrays and objects the nodes below
    Kind kind;
  };
  std::string text_;
  std::vector<Node> nodes_;
};

// A value of a Json, which must outlive it. A member that an object lacks is null.
class Value {
 public:
  Value() = default;  // null
  bool null() const;
  bool is_string() const;
  bool is_array() const;
  bool is_object() const;
  // These throw Invalid if the value has another kind.
  std::string_view string() const;
  bool flag() const;
  double number() const;
  uint32_t index() const;  // a number of 31 bits, not below zero
  // A member of an object, the last of that name.
  Value operator[](std::string_view name) const;
  // The same with a default for a member that is absent or null.
  std::string_view string(std::string_view name, std::string_view otherwise) const;
  bool flag(std::string_view name, bool otherwise) const;
  uint32_t index(std::string_view name, uint32_t otherwise) const;

  // Calls `each(Value)` with the items of an array; null has none.
  template <typename Each>
  void items(Each each) const {
    if (null()) return;
    expect(Json::Kind::kArray, "an array");
    for (uint32_t at = node_ + 1, end = after(node_); at < end; at = after(at)) each(Value(json_, at));
  }

  // Calls `each(std::string_view, Value)` with the members of an object; null has none.
  template <typename Each>
  void members(Each each) const {
    if (null()) return;
    expect(Json::Kind::kObject, "an object");
    for (uint32_t at = node_ + 1, end = after(node_); at < end; at = after(at + 1)) {
      each(Value(json_, at).string(), Value(json_, at + 1));
    }
  }

 private:
  friend class Json;
  Value(const Json* json, uint32_t node) : json_(json), node_(node) {}
  const Json::Node& node() const { return json_->nodes_[node_]; }
  uint32_t after(uint32_t node) const;
  void expect(Json::Kind kind, const char* what) const;

  const Json* json_ = nullptr;  // null: absent
  uint32_t node_ = 0;
};

}  // namespace mlcc::tokenizer

#endif  // MLCC_TOKENIZER_JSON_H_
