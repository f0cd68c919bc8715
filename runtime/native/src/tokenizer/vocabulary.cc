#include "tokenizer/vocabulary.h"

#include <cstring>
#include <utility>

#include "tokenizer/invalid.h"

namespace mlcc::tokenizer {

namespace {

constexpr uint64_t kMix = 0x9E3779B97F4A7C15u;

// A power of two with room for twice the count.
size_t slots_for(size_t count) {
  size_t slots = 16;
  while (slots < 2 * count) slots *= 2;
  return slots;
}

uint64_t mixed(uint64_t value) {
  value *= kMix;
  return value ^ value >> 29;
}

}  // namespace

uint64_t hash_of(std::string_view text) {
  uint64_t hash = text.size() * kMix;
  const char* at = text.data();
  size_t left = text.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = mixed(hash ^ word);
  }
  uint64_t word = 0;
  if (left) std::memcpy(&word, at, left);
  hash = mixed(hash ^ word);
  return mixed(hash ^ hash >> 32);
}

void Vocabulary::reserve(size_t count, size_t bytes) {
  slots_.assign(slots_for(count), {0, kNone});
  texts_.reserve(count);
  arena_.reserve(bytes);
}

size_t Vocabulary::place(std::string_view text, uint64_t hash) const {
  auto tag = static_cast<uint32_t>(hash >> 32);
  size_t at = hash & (slots_.size() - 1);
  while (slots_[at].id != kNone) {
    if (slots_[at].tag == tag && texts_[static_cast<size_t>(slots_[at].id)] == text) break;
    at = (at + 1) & (slots_.size() - 1);
  }
  return at;
}

void Vocabulary::add(std::string_view text, uint32_t id) {
  if (id > 4 * slots_.size() + 65536) throw Invalid("token id " + std::to_string(id) + " is far beyond the vocabulary");
  if (2 * (size_ + 1) > slots_.size() + 1 || arena_.size() + text.size() > arena_.capacity()) {
    throw Invalid("the vocabulary has more tokens than it counts");
  }
  uint64_t hash = hash_of(text);
  size_t at = place(text, hash);
  if (slots_[at].id == kNone) ++size_;
  slots_[at] = {static_cast<uint32_t>(hash >> 32), static_cast<int32_t>(id)};
  if (id >= texts_.size()) texts_.resize(id + 1);
  arena_.append(text);  // never moves: its capacity was reserved
  texts_[id] = std::string_view(arena_.data() + arena_.size() - text.size(), text.size());
  longest_ = text.size() > longest_ ? text.size() : longest_;
}

int32_t Vocabulary::id(std::string_view text) const {
  if (text.size() > longest_ || slots_.empty()) return kNone;
  return slots_[place(text, hash_of(text))].id;
}

void Vocabulary::find(const std::vector<std::string_view>& texts, std::vector<int32_t>& ids) const {
  ids.assign(texts.size(), kNone);
  if (slots_.empty()) return;
  std::vector<uint64_t> hashes(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    hashes[i] = hash_of(texts[i]);
    __builtin_prefetch(&slots_[hashes[i] & (slots_.size() - 1)]);
  }
  for (uint64_t hash : hashes) {
    const Slot& slot = slots_[hash & (slots_.size() - 1)];
    if (slot.id != kNone) __builtin_prefetch(&texts_[static_cast<size_t>(slot.id)]);
  }
  for (uint64_t hash : hashes) {
    const Slot& slot = slots_[hash & (slots_.size() - 1)];
    if (slot.id != kNone) __builtin_prefetch(texts_[static_cast<size_t>(slot.id)].data());
  }
  for (size_t i = 0; i < texts.size(); ++i) ids[i] = slots_[place(texts[i], hashes[i])].id;
}

void Trie::reserve(size_t nodes) { grow(slots_for(nodes)); }

size_t Trie::place(uint64_t key) const {
  size_t at = mixed(key) & (slots_.size() - 1);
  while (slots_[at].node != 0 && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
  return at;
}

void Trie::grow(size_t slots) {
  std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots, Slot{0, 0}));
  for (const Slot& slot : old) {
    if (slot.node != 0) slots_[place(slot.key)] = slot;
  }
}

void Trie::add(std::string_view text, uint32_t value) {
  if (slots_.size() < 2 * (values_.size() + text.size())) grow(slots_for(2 * (values_.size() + text.size())));
  uint32_t node = 0;
  for (char c : text) {
    uint64_t key = static_cast<uint64_t>(node) << 8 | static_cast<unsigned char>(c);
    size_t at = place(key);
    if (slots_[at].node == 0) {
      slots_[at] = {key, static_cast<uint32_t>(values_.size())};
      values_.push_back(-1);
    }
    node = slots_[at].node;
  }
  if (node != 0) values_[node] = static_cast<int32_t>(value);
}

}  // namespace mlcc::tokenizer
