// Greetings, thanks and farewells, some of them in other languages.
#include "data/synth/topics.h"

namespace braid::synth {
namespace {

constexpr Topic kCourtesies[] = {
    {"a greeting", "Hello! Ask me a sum, a word puzzle, or something about Braid.", "",
     "Hello|Hi|Hey|Hello!|Hi!|Hey there|Good morning|Good evening|Good day|hello|hi|hi there|Hello there!|Greetings|"
     "Hello Tiny|Hi Tiny!|Hey Tiny|How are you?|Nice to meet you|hey|Good afternoon|Hello, how are you?|yo|Hiya|Hey "
     "there!|good evening.|Good afternoon!|hiya|Hello there.|Bonjour|Bonjour!|Salut|Bonsoir|Hola|Hola!|Buenos dias|"
     "Hallo|Guten Tag|Guten Morgen|Moin|Servus|Ciao|Buongiorno|Salve|Ola|Bom dia|Boa tarde|Hoi|Goedemorgen|Konnichiwa|"
     "Ohayo|Namaste|Ni hao|Merhaba|Privet|Hej|Ahoj|Czesc|Shalom|Salaam|Aloha|Annyeong|What's up?|Howdy|G'day|Morning!|"
     "Evening!|How do you do?|How's it going?|sup|How are things?|Good to see you|Pleased to meet you.|Hello friend|"
     "Hi, I'm new here.|Is anybody there?|hello hello|Hello bot|Long time no see!|Hey buddy|Hi everyone|Good morning, "
     "Tiny!|Hello again|I just wanted to say hello.|How are you today, Tiny?|heya|Hello world|Hello, is anyone around?|"
     "Top of the morning!|How are you doing?|A very good day to you!|hullo"},
    {"thanks", "You are welcome.", "",
     "Thanks|Thank you|Thank you!|thanks|Thanks a lot|Many thanks|Thank you very much|Great, thanks|thx|Thanks!|That "
     "helped, thank you|Perfect, thanks|Well done|Good job|Great|Nice|Cool|thank you|Thank you very much!|thanks a lot|"
     "Cheers, that helped.|Many thanks!|Great, thank you.|That was helpful, thanks!|I appreciate it|Thank you, Tiny!|"
     "ok thanks|Much obliged|Thank you so much!|Thanks for your help|Thank you kindly|ta|Cheers!|Awesome, thanks|Merci|"
     "Merci beaucoup!|Gracias|Muchas gracias|Danke|Danke schoen|Vielen Dank!|Grazie|Grazie mille|Obrigado|Dank je wel|"
     "Bedankt|Arigato|Spasibo|Tack|Thanks a million|That's great|Brilliant!|Excellent|You rock!|Lovely, thank you|tysm|"
     "Wonderful|thank u|You've been a great help|Got it, thanks|Perfect!|Very kind of you|I'm grateful|Super|That was "
     "exactly what I needed.|Thanks a bunch|Fantastic job|Impressive!|I owe you one|Nice work, Tiny|You were very "
     "helpful.|ty|Right answer, well done!|Thank you for taking the time to explain all of that.|Amazing|Good answer|"
     "Bravo!"},
    {"a farewell", "Goodbye!", "",
     "Bye|Goodbye|Bye!|See you|See you later|Good night|bye|Goodbye Tiny|Farewell|Until tomorrow|Goodbye!|see you|"
     "See you later!|bye bye|Good night.|I have to go now, bye|Take care!|That is all for today, goodbye.|so long|"
     "Until next time!|Cya|Au revoir|Adios|Hasta luego|Auf Wiedersehen|Tschuess|Arrivederci|Tchau|Ate logo|Tot ziens|"
     "Sayonara|Do svidaniya|A bientot|Adieu|Have a nice day!|Have a good evening|Catch you later|Talk to you soon|"
     "I'm off, bye|Bye for now|See you tomorrow|See you soon!|Later!|Good night, Tiny|Gotta go|I must leave now, "
     "goodbye.|Cheerio|Signing off|Logging off now, bye.|We'll talk again, bye|Goodbye, my friend|See you around|Till "
     "next week|Have a great weekend!|It was nice talking to you, bye|Bye, Tiny!|ttyl|goodnight|Enjoy your evening, "
     "goodbye.|I should get going. Bye!|Tot morgen|Hasta manana|Bis bald"},
};

}  // namespace

std::span<const Topic> courtesies() { return kCourtesies; }

}  // namespace braid::synth
