#include "text/jinja_html.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "sys/utf8.h"
#include "text/jinja_text.h"

namespace braid::text::jinja {
namespace {

// The names of HTML 4 and those that HTML 5 spells in capitals, with their code points.
constexpr std::string_view kHtmlNames =
    "AElig=198 AMP=38 Aacute=193 Acirc=194 Agrave=192 Alpha=913 Aring=197 Atilde=195 Auml=196 Beta=914 COPY=169 "
    "Ccedil=199 Chi=935 Dagger=8225 Delta=916 ETH=208 Eacute=201 Ecirc=202 Egrave=200 Epsilon=917 Eta=919 "
    "Euml=203 GT=62 Gamma=915 Iacute=205 Icirc=206 Igrave=204 Iota=921 Iuml=207 Kappa=922 LT=60 Lambda=923 "
    "Mu=924 Ntilde=209 Nu=925 OElig=338 Oacute=211 Ocirc=212 Ograve=210 Omega=937 Omicron=927 Oslash=216 "
    "Otilde=213 Ouml=214 Phi=934 Pi=928 Prime=8243 Psi=936 QUOT=34 REG=174 Rho=929 Scaron=352 Sigma=931 "
    "THORN=222 Tau=932 Theta=920 Uacute=218 Ucirc=219 Ugrave=217 Upsilon=933 Uuml=220 Xi=926 Yacute=221 Yuml=376 "
    "Zeta=918 aacute=225 acirc=226 acute=180 aelig=230 agrave=224 alefsym=8501 alpha=945 amp=38 and=8743 "
    "ang=8736 apos=39 aring=229 asymp=8776 atilde=227 auml=228 bdquo=8222 beta=946 brvbar=166 bull=8226 cap=8745 "
    "ccedil=231 cedil=184 cent=162 chi=967 circ=710 clubs=9827 cong=8773 copy=169 crarr=8629 cup=8746 curren=164 "
    "dArr=8659 dagger=8224 darr=8595 deg=176 delta=948 diams=9830 divide=247 eacute=233 ecirc=234 egrave=232 "
    "empty=8709 emsp=8195 ensp=8194 epsilon=949 equiv=8801 eta=951 eth=240 euml=235 euro=8364 exist=8707 "
    "fnof=402 forall=8704 frac12=189 frac14=188 frac34=190 frasl=8260 gamma=947 ge=8805 gt=62 hArr=8660 "
    "harr=8596 hearts=9829 hellip=8230 iacute=237 icirc=238 iexcl=161 igrave=236 image=8465 infin=8734 int=8747 "
    "iota=953 iquest=191 isin=8712 iuml=239 kappa=954 lArr=8656 lambda=955 lang=9001 laquo=171 larr=8592 "
    "lceil=8968 ldquo=8220 le=8804 lfloor=8970 lowast=8727 loz=9674 lrm=8206 lsaquo=8249 lsquo=8216 lt=60 "
    "macr=175 mdash=8212 micro=181 middot=183 minus=8722 mu=956 nabla=8711 nbsp=160 ndash=8211 ne=8800 ni=8715 "
    "not=172 notin=8713 nsub=8836 ntilde=241 nu=957 oacute=243 ocirc=244 oelig=339 ograve=242 oline=8254 "
    "omega=969 omicron=959 oplus=8853 or=8744 ordf=170 ordm=186 oslash=248 otilde=245 otimes=8855 ouml=246 "
    "para=182 part=8706 permil=8240 perp=8869 phi=966 pi=960 piv=982 plusmn=177 pound=163 prime=8242 prod=8719 "
    "prop=8733 psi=968 quot=34 rArr=8658 radic=8730 rang=9002 raquo=187 rarr=8594 rceil=8969 rdquo=8221 "
    "real=8476 reg=174 rfloor=8971 rho=961 rlm=8207 rsaquo=8250 rsquo=8217 sbquo=8218 scaron=353 sdot=8901 "
    "sect=167 shy=173 sigma=963 sigmaf=962 sim=8764 spades=9824 sub=8834 sube=8838 sum=8721 sup=8835 sup1=185 "
    "sup2=178 sup3=179 supe=8839 szlig=223 tau=964 there4=8756 theta=952 thetasym=977 thinsp=8201 thorn=254 "
    "tilde=732 times=215 trade=8482 uArr=8657 uacute=250 uarr=8593 ucirc=251 ugrave=249 uml=168 upsih=978 "
    "upsilon=965 uuml=252 weierp=8472 xi=958 yacute=253 yen=165 yuml=255 zeta=950 zwj=8205 zwnj=8204 ";

std::map<std::string_view, uint32_t> names() {
  std::map<std::string_view, uint32_t> map;
  for (size_t at = 0; at < kHtmlNames.size();) {
    const size_t equals = kHtmlNames.find('=', at), end = kHtmlNames.find(' ', equals);
    uint32_t code = 0;
    std::from_chars(kHtmlNames.data() + equals + 1, kHtmlNames.data() + end, code);
    map[kHtmlNames.substr(at, equals - at)] = code;
    at = end + 1;
  }
  return map;
}

// Of numbers that HTML 5 reads as characters of Windows-1252, from 0x80 on; 0: as they are, which have no glyph.
constexpr uint32_t kWindows1252[] = {0x20ac, 0x81,   0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021,
                                     0x02c6, 0x2030, 0x0160, 0x2039, 0x0152, 0x8d,   0x017d, 0x8f,
                                     0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
                                     0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0x9d,   0x017e, 0x0178};

std::string of_number(uint64_t code) {
  if (code == 0 || (code >= 0xD800 && code <= 0xDFFF) || code > 0x10FFFF) return "\xEF\xBF\xBD";
  if (code >= 0x80 && code < 0xA0) code = kWindows1252[code - 0x80];
  const bool control = code < 9 || code == 11 || (code >= 14 && code < 32) || code == 127;
  const bool none = control || (code >= 0xFDD0 && code <= 0xFDEF) || (code & 0xFFFE) == 0xFFFE;
  std::string out;
  if (!none) sys::append_utf8(static_cast<char32_t>(code), out);
  return out;
}

// Digits of a reference behind "&#" or "&#x", as many as there are; saturated.
uint64_t take_number(std::string_view& s, unsigned base) {
  uint64_t code = 0;
  for (; !s.empty(); s.remove_prefix(1)) {
    const auto c = static_cast<unsigned char>(s.front());
    const unsigned digit = c >= '0' && c <= '9'                 ? c - '0'
                           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                                : 99;
    if (digit >= base) break;
    code = std::min<uint64_t>(code * base + digit, uint64_t{1} << 40);
  }
  return code;
}

// What a reference behind an ampersand says; `s` is left at what follows it. Nothing where it is none.
std::optional<std::string> reference(std::string_view& s, const std::map<std::string_view, uint32_t>& named) {
  if (s.starts_with('#')) {
    std::string_view digits = s.substr(1);
    const bool hex = digits.starts_with('x') || digits.starts_with('X');
    if (hex) digits.remove_prefix(1);
    const size_t before = digits.size();
    const uint64_t code = take_number(digits, hex ? 16 : 10);
    if (digits.size() == before) return std::nullopt;
    if (digits.starts_with(';')) digits.remove_prefix(1);
    s = digits;
    return of_number(code);
  }
  const size_t most = std::min(s.find_first_of(std::string_view("\t\n\f <&#;")), s.size());
  std::string out;
  if (const auto found = named.find(s.substr(0, most)); found != named.end() && s.substr(most).starts_with(';')) {
    sys::append_utf8(static_cast<char32_t>(found->second), out);
    s.remove_prefix(most + 1);
    return out;
  }
  // Those of Latin-1 need no semicolon, and may go on with other letters.
  for (size_t n = std::min<size_t>(most, 8); n > 1; --n) {
    const auto found = named.find(s.substr(0, n));
    if (found == named.end() || found->second > 255 || found->first == "apos") continue;
    sys::append_utf8(static_cast<char32_t>(found->second), out);
    s.remove_prefix(n);
    return out;
  }
  return std::nullopt;
}

}  // namespace

std::string unescape_html(std::string_view s) {
  std::string out;
  std::map<std::string_view, uint32_t> named;
  for (size_t at = s.find('&'); at != s.npos; at = s.find('&')) {
    if (named.empty()) named = names();
    out += s.substr(0, at);
    s.remove_prefix(at + 1);
    const auto found = reference(s, named);
    out += found ? *found : "&";
  }
  return out.append(s);
}

std::string strip_tags(const std::string& s) {
  std::string out;
  size_t pos = 0;
  for (size_t start = s.find('<'); start != s.npos; start = s.find('<', pos)) {
    const bool comment = s.compare(start, 4, "<!--") == 0;
    const size_t end = comment ? s.find("-->", start + 4) : s.find('>', start);
    if (end == s.npos) break;
    out.append(s, pos, start - pos);
    pos = end + (comment ? 3 : 1);
  }
  out.append(s, pos);
  return unescape_html(join(" ", split(out, "", -1)));
}

}  // namespace braid::text::jinja
