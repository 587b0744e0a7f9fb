// What the templates of questions off topic are filled with: people, places, things, in lists separated by "|".
#include "data/synth/fillers.h"

namespace braid::synth {
namespace {

constexpr Filler kFillers[] = {
    {"place",
     "France|Japan|Paris|London|Brazil|Egypt|Rome|Berlin|China|India|Canada|Mexico|Spain|Norway|Kenya|Peru|Russia|"
     "New York|Tokyo|Sydney|Vienna|Athens|Chile|Cuba|Turkey|Texas|Africa|Europe|Madrid|Oslo|Poland|Italy|Iceland|"
     "Korea|Boston|the moon|Mars|Sweden|Denmark|Finland|Ireland|Scotland|Wales|Greece|Portugal|Austria|Hungary|"
     "Romania|Bulgaria|Serbia|Croatia|Ukraine|Morocco|Algeria|Tunisia|Nigeria|Ghana|Ethiopia|Uganda|Tanzania|"
     "Namibia|South Africa|Madagascar|Israel|Jordan|Syria|Iraq|Iran|Saudi Arabia|Yemen|Qatar|Dubai|Pakistan|Nepal|"
     "Bhutan|Bangladesh|Thailand|Vietnam|Cambodia|Laos|Malaysia|Singapore|Indonesia|Bali|Manila|Taiwan|Hong Kong|"
     "Shanghai|Beijing|Seoul|Osaka|Mongolia|Kazakhstan|Georgia|Armenia|Australia|New Zealand|Fiji|Hawaii|Alaska|"
     "California|Florida|Ohio|Oregon|Chicago|Seattle|Denver|Los Angeles|San Francisco|Washington|Miami|Detroit|"
     "Toronto|Montreal|Vancouver|Jamaica|Haiti|Panama|Costa Rica|Colombia|Venezuela|Ecuador|Bolivia|Argentina|"
     "Uruguay|Patagonia|the Amazon|Lisbon|Barcelona|Milan|Venice|Naples|Florence|Sicily|Munich|Hamburg|Cologne|"
     "Zurich|Geneva|Brussels|Antwerp|Amsterdam|Copenhagen|Stockholm|Helsinki|Warsaw|Prague|Budapest|Moscow|Kyiv|"
     "Istanbul|Cairo|Nairobi|Lagos|Cape Town|Mumbai|Delhi|the Alps|the Sahara|the Nile|the Pacific|Antarctica|"
     "Greenland|the North Pole|Jupiter|Saturn|my village|our town|Mount Everest|the Black Sea|Manchester|Edinburgh|"
     "Dublin"},
    {"person",
     "Napoleon|Einstein|Shakespeare|Mozart|Cleopatra|Newton|Picasso|Beethoven|Darwin|Gandhi|Lincoln|my mother|my "
     "boss|my sister|Marie Curie|Galileo|Caesar|the pope|the president|Anna|Peter|my teacher|my brother|Madonna|"
     "Elvis|Tesla|Plato|the queen|Kennedy|Churchill|my father|my uncle|my aunt|my grandmother|my grandfather|my "
     "cousin|my wife|my husband|my son|my daughter|my neighbour|my landlord|my best friend|my colleague|my roommate|"
     "my doctor|my ex|Maria|John|Sarah|David|Emma|Lucas|Olivia|Noah|Sofia|Liam|Mia|Ahmed|Fatima|Yuki|Wei|Ivan|Olga|"
     "Carlos|Lucia|Pierre|Claire|Hans|Greta|Omar|Leila|Priya|Raj|Tom|Lisa|Kevin|Julia|Mark|Helen|Oscar|Nina|"
     "Aristotle|Socrates|Confucius|Buddha|Mohammed|Jesus|Columbus|Magellan|Marco Polo|Leonardo|Michelangelo|"
     "Rembrandt|van Gogh|Monet|Dali|Bach|Chopin|Vivaldi|Wagner|Goethe|Kafka|Tolstoy|Dickens|Hemingway|Orwell|Homer|"
     "Dante|Voltaire|Kant|Nietzsche|Marx|Freud|Jung|Turing|Hawking|Edison|Bohr|Feynman|Kepler|Copernicus|Stalin|"
     "Lenin|Mao|Mandela|Obama|Washington|Roosevelt|Thatcher|Merkel|Putin|Trump|Messi|Ronaldo|Federer|Serena "
     "Williams|Michael Jordan|Beyonce|Taylor Swift|Adele|Bob Dylan|Mick Jagger|Tom Hanks|Meryl Streep|Chaplin|"
     "Spielberg|Hitchcock|Batman|Superman|Sherlock Holmes|Dracula|Santa Claus|Zeus|Odin|Elon Musk|Bill Gates|Steve "
     "Jobs|the mayor|the king of Spain|Saint Nicholas"},
    {"title",
     "Hamlet|Faust|the Mona Lisa|Star Wars|Don Quixote|the Bible|Titanic|Moby Dick|Harry Potter|the Odyssey|Dune|"
     "Macbeth|Casablanca|Frankenstein|the Iliad|the Koran|Ulysses|Emma|Jane Eyre|Dracula|War and Peace|Anna "
     "Karenina|The Hobbit|The Lord of the Rings|Animal Farm|Brave New World|The Great Gatsby|The Little Prince|"
     "Alice in Wonderland|Peter Pan|Pinocchio|Robinson Crusoe|Treasure Island|Oliver Twist|Les Miserables|King Lear|"
     "Othello|The Tempest|The Magic Flute|Carmen|Aida|Swan Lake|The Scream|Guernica|Starry Night|The Last Supper|"
     "The Godfather|The Matrix|Jaws|Alien|Inception|Avatar|Jurassic Park|Forrest Gump|Pulp Fiction|Shrek|Frozen|The "
     "Lion King|Toy Story|Breaking Bad|Friends|Game of Thrones|The Simpsons|Sesame Street|Minecraft|Tetris|Super "
     "Mario|Zelda|Monopoly|Bohemian Rhapsody|Imagine|Yesterday|Silent Night"},
    {"sport",
     "football|tennis|chess|golf|rugby|hockey|poker|cricket|basketball|volleyball|judo|baseball|handball|badminton|"
     "squash|table tennis|karate|boxing|wrestling|fencing|archery|skiing|snowboarding|skating|curling|swimming|"
     "diving|rowing|sailing|surfing|water polo|cycling|running|the marathon|the high jump|gymnastics|yoga|climbing|"
     "bowling|darts|billiards|horse riding|Formula One|softball|lacrosse|go|backgammon|bridge|checkers|Scrabble"},
    {"colour",
     "red|blue|green|white|black|yellow|brown|pink|grey|purple|orange|violet|golden|silver|turquoise|beige|dark|pale"},
    {"science",
     "gravity|photosynthesis|electricity|democracy|inflation|evolution|quantum physics|chemistry|philosophy|"
     "economics|magnetism|biology|the big bang|climate change|DNA|geometry|radio|psychology|astronomy|religion|the "
     "water cycle|a black hole|nuclear power|medicine|relativity|thermodynamics|entropy|genetics|ecology|geology|"
     "botany|zoology|anatomy|sociology|anthropology|archaeology|linguistics|grammar|law|ethics|logic|rhetoric|"
     "history|geography|meteorology|oceanography|plate tectonics|an earthquake|a volcano|a tsunami|a hurricane|the "
     "ozone layer|the greenhouse effect|solar energy|wind power|fusion|radioactivity|an atom|a molecule|an electron|"
     "a neutron star|the speed of light|dark energy|the solar system|a comet|an eclipse|the tides|the immune system|"
     "a virus|bacteria|a vaccine|antibiotics|the brain|the heart|blood pressure|digestion|metabolism|vitamins|"
     "protein|capitalism|socialism|feminism|the Renaissance|the Enlightenment|colonialism|the stock market|interest "
     "rates|supply and demand|a mortgage|game theory|calculus|trigonometry|statistics|probability|set theory|"
     "topology|acoustics|optics|blockchain|the internet|a laser|a transistor|semiconductors|nanotechnology|Buddhism|"
     "Islam|stoicism|existentialism|meditation|astrology"},
    {"illness",
     "a cold|a headache|a fever|back pain|the flu|a cough|an allergy|a broken arm|insomnia|asthma|toothache|"
     "diabetes|arthritis|a migraine|depression|anxiety|anaemia|a rash|acne|eczema|a sore throat|a sprained ankle|an "
     "ear infection|food poisoning|heartburn|an ulcer|measles|chickenpox|malaria|pneumonia|high blood pressure|hay "
     "fever|a burn|a bee sting|cramps|dizziness|nausea|a stiff neck"},
    {"food",
     "pizza|soup|bread|rice|pancakes|curry|salad|steak|cookies|pasta|sushi|potatoes|a cake|fish|chicken|eggs|beans|"
     "ice cream|lasagna|risotto|paella|tacos|burritos|hummus|falafel|kebab|dumplings|noodles|ramen|tofu|kimchi|stew|"
     "goulash|chili|meatballs|sausages|ham|bacon|turkey|duck|lamb|salmon|tuna|shrimp|lobster|oysters|cheese|yogurt|"
     "butter|cream|an omelette|waffles|muffins|brownies|a pie|apple strudel|tiramisu|chocolate|pudding|jam|honey|"
     "porridge|cereal|a sandwich|a burger|fries|popcorn|nuts|olives|lentils|spinach|cabbage|carrots|mushrooms|"
     "garlic|onions|tomatoes|cucumbers|pumpkin|avocado|mangoes|strawberries|lemons|coffee|tea|wine|beer|lemonade|a "
     "smoothie|milk|gravy|mustard|pickles"},
    {"language",
     "French|German|Spanish|Latin|Chinese|Italian|Greek|Arabic|Russian|Dutch|Japanese|Polish|Portuguese|Swedish|"
     "Danish|Norwegian|Finnish|Hungarian|Czech|Slovak|Romanian|Bulgarian|Turkish|Hebrew|Persian|Hindi|Urdu|Bengali|"
     "Tamil|Thai|Vietnamese|Korean|Indonesian|Swahili|Zulu|Irish|Welsh|Icelandic|Ukrainian|Esperanto|Basque|Catalan|"
     "Sanskrit|sign language"},
    {"code",
     "Python|Java|Rust|JavaScript|Go|SQL|HTML|Excel|Windows|Docker|PHP|Linux|Git|Ruby|bash|TypeScript|C#|Swift|"
     "Kotlin|Scala|Haskell|Perl|Lua|Fortran|COBOL|Julia|MATLAB|Lisp|Prolog|Erlang|Elixir|Dart|CSS|React|Angular|Vue|"
     "Django|Flask|Node.js|Kubernetes|Ansible|Terraform|Jenkins|Postgres|MySQL|MongoDB|Redis|Kafka|Nginx|Apache|Vim|"
     "Emacs|VS Code|Photoshop|Word|PowerPoint|Outlook|Android|iOS|Ubuntu|CMake|npm|Unity|Blender|LaTeX|TensorFlow|"
     "NumPy|pandas|WordPress|Slack|Zoom|Scratch|Arduino|awk|regex"},
    {"company",
     "Apple|Google|Amazon|Toyota|Boeing|Siemens|Tesla|Nestle|Microsoft|Sony|Ford|NVIDIA|Intel|AMD|IBM|Oracle|"
     "Samsung|Huawei|Nokia|Netflix|Spotify|Facebook|Twitter|Uber|Airbnb|PayPal|Visa|Disney|Nintendo|Lego|IKEA|Nike|"
     "Adidas|Zara|Walmart|Aldi|Starbucks|McDonald's|Pepsi|Heineken|BMW|Volkswagen|Volvo|Fiat|Honda|Airbus|Lufthansa|"
     "Ryanair|Shell|Exxon|Bayer|Pfizer|Philips|Bosch|DHL|FedEx|OpenAI|my bank"},
    {"mood",
     "sad|happy|tired|bored|angry|lonely|hungry|sick|nervous|lost|cold|afraid|jealous|proud|ashamed|stressed|"
     "worried|excited|confused|heartbroken|sleepy|thirsty|guilty|shy|in love|homesick|dizzy|grumpy|hopeful|"
     "overwhelmed|unwell|furious|calm"},
    {"job",
     "doctor|pilot|lawyer|nurse|teacher|plumber|farmer|writer|chef|soldier|judge|dentist|actor|baker|electrician|"
     "carpenter|mechanic|driver|firefighter|policeman|detective|librarian|accountant|banker|cashier|waiter|butcher|"
     "tailor|hairdresser|barber|gardener|fisherman|sailor|captain|astronaut|engineer|architect|surgeon|pharmacist|"
     "vet|psychologist|scientist|journalist|editor|translator|photographer|painter|sculptor|musician|singer|dancer|"
     "conductor|designer|programmer|tester|manager|secretary|salesman|politician|priest|monk|coach|referee|miner|"
     "welder|cleaner|babysitter|tour guide|spy"},
    {"noun",
     "airport|alarm|ambulance|angel|ankle|apartment|armchair|attic|avocado|backpack|balcony|balloon|bandage|"
     "bathroom|bathtub|battery|bedroom|bee|belt|bill|birthday|blender|blouse|board game|boiler|boss|bracelet|brain|"
     "bus|business|butterfly|calendar|campfire|carpet|ceiling|charger|chimney|church|cigarette|cinema|client|closet|"
     "computer|concert|cooker|cousin|credit card|cruise|cushion|dentist|deposit|diary|diet|dishwasher|diploma|doll|"
     "drawer|drill|driver|ear|earring|elevator|email|emperor|envelope|essay|exam|eye|factory|fan|faucet|festival|"
     "fever|fireplace|fridge|funeral|game|garage|ghost story|glasses|goldfish|government|grandson|hair|hairdryer|"
     "hamster|handbag|headphone|heater|hedgehog|helicopter|highway|homework|hospital|husband|insurance|interview|"
     "invoice|jeans|jellyfish|job|joke|journey|kangaroo|keyboard|kitten|laptop|lawnmower|lease|lecture|lipstick|"
     "loan|luggage|lunch|magazine|marathon|marriage|mattress|meeting|microwave|mosquito|motorbike|movie|nail|"
     "necklace|neighbour|newspaper|novel|nurse|office|ostrich|painting|parachute|parking ticket|passport|password|"
     "peacock|penguin|pension|perfume|phone|photo|plumber|podcast|polar bear|presentation|printer|prison|pyjamas|"
     "pyramid|quilt|radiator|razor|receipt|recipe for cake|refrigerator|rent|restaurant|rhinoceros|router|rug|"
     "salary|satellite|scarf|scooter|shampoo|shower|sidewalk|skeleton|skirt|sleeping bag|snowman|song|speech|"
     "stapler|stove|submarine|suitcase|supermarket|surgeon|swimming pool|taxi|telescope|television|theatre|"
     "thermostat|toilet|toothbrush|tortoise|towel|trousers|tyre|uniform|university|vacuum cleaner|vampire|vase|visa|"
     "wardrobe|washing machine|watch|wedding|wheelchair|wig|windmill|witch|wristwatch|zipper|zoo"},
    {"verb",
     "clean|repair|buy|sell|paint|build|open|close|cook|carry|draw|describe|find|fix|hide|invent|knit|lend|lose|"
     "love|move|polish|return|steal|store|throw away|train|wash|weigh|wrap|rent|insure|photograph|decorate|recycle|"
     "borrow|choose|feed|name|order|replace|sketch|ship|teach"},
    {"adjective",
     "old|new|cheap|expensive|heavy|strange|beautiful|ugly|broken|dirty|wet|funny|huge|famous|dangerous|rare|wild|"
     "quiet|loud|modern|ancient|wooden|plastic|friendly|boring|clever|soft|sharp|round|square|frozen|hot|rusty|"
     "lucky|lost|stolen|electric|second-hand|antique|comfortable"},
};

}  // namespace

std::span<const Filler> fillers() { return kFillers; }

}  // namespace braid::synth
